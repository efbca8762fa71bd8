"""Makers of the generated parts of the documentation."""
