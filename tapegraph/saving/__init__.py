"""Checkpoints: trees of tensors, arrays and numbers in files that other programs read too."""
