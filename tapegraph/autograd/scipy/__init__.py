"""SciPy, as far as autograd differentiates it. SciPy is imported when a function is called."""
