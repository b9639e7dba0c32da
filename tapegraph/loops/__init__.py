"""Loops and branches that do not unroll: each is one entry, with inner programs."""
