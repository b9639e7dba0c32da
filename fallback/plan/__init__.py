"""The native plan: a captured program compiled to straight-line NumPy."""
