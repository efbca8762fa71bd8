"""Whole runs over causal language models: relearning of several checkpoints, injection, studies."""
