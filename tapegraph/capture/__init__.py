"""Capture a program while it runs: every operation that depends on an input or on state."""
