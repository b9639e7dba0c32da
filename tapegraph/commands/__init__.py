"""``python -m tapegraph``."""
