"""A program captured while it runs: every operation that depends on an input or on state."""
