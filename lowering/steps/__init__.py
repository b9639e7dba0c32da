"""Compiled steps: a whole program as one graph with its state in variables, and with XLA."""
