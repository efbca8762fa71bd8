"""Training: pure losses, length-bucketed batches, checkpoints, and the only optimisation loop."""
