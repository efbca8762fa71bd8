"""Making checkpoints of causal language models: fine-tuned ones and unlearned ones. No torch at import."""
