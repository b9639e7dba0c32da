"""Graphs of a plain backward: traced, cached by structure, and looked at."""
