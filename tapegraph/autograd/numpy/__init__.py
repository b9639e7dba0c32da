"""NumPy, differentiable: ``import tapegraph.autograd.numpy as np``.

Every name is NumPy's. On plain arguments every function is NumPy's own; where a traced value is
among them it records.
"""

from __future__ import annotations

from tapegraph.autograd.numpy import (
    fft,
    linalg,
    numpy_boxes,
    numpy_jvps,
    numpy_vjps,
    numpy_vspaces,
    numpy_wrapper,
    random,
)
from tapegraph.autograd.numpy.numpy_wrapper import *

__all__ = [
    *numpy_wrapper.__all__,
    "fft",
    "linalg",
    "numpy_boxes",
    "numpy_jvps",
    "numpy_vjps",
    "numpy_vspaces",
    "numpy_wrapper",
    "random",
]


def __getattr__(name: str) -> object:
    """Return what else NumPy has by a name, as it is: its modules, and names of one release."""
    import numpy

    return getattr(numpy, name)
