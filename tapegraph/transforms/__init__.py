"""Functions that take a function and return its derivative."""
