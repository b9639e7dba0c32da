"""SciPy, as far as autograd differentiates it. SciPy is imported when a function is called."""

from tapegraph.autograd.scipy import integrate, linalg, signal, special, stats

__all__ = ["integrate", "linalg", "signal", "special", "stats"]
