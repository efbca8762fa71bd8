"""Metrics of a method over several training seeds, or over several views at once: see `SEED_METRICS`."""
