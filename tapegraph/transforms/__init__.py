"""Functions that take a function and return its derivative, or run it on many examples."""
