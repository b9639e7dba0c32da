"""NumPy, differentiable: ``import tapegraph.autograd.numpy as np``.

Every name is NumPy's. On plain arguments every function is NumPy's own; where a traced value is
among them it records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    # What type checkers are told of a name is what NumPy tells of it.
    from numpy import *  # type: ignore[no-redef]

    from tapegraph.autograd.numpy.numpy_wrapper import array_from_args as array_from_args
    from tapegraph.autograd.numpy.numpy_wrapper import concatenate_args as concatenate_args
    from tapegraph.autograd.numpy.numpy_wrapper import make_diagonal as make_diagonal
    from tapegraph.autograd.numpy.numpy_wrapper import metadata as metadata

    row_stack = vstack  # noqa: F405
else:
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
        """Return what else NumPy has by a name, as it is: modules, and names of one release."""
        import numpy

        return getattr(numpy, name)
