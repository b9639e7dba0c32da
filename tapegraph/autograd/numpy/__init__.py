"""NumPy, differentiable: ``import tapegraph.autograd.numpy as np``.

On plain arguments every function is NumPy's own; traced values are recorded. `random` is NumPy's,
and a traced parameter of a distribution is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tapegraph.autograd.numpy import numpy_vjps, numpy_vspaces, numpy_wrapper
from tapegraph.autograd.util import submodule

if TYPE_CHECKING:
    # Type checkers see NumPy's types.
    from numpy import *
    from numpy import fft as fft
    from numpy import linalg as linalg
    from numpy import random as random

    from tapegraph.autograd.numpy.numpy_wrapper import array_from_args as array_from_args
    from tapegraph.autograd.numpy.numpy_wrapper import concatenate_args as concatenate_args
    from tapegraph.autograd.numpy.numpy_wrapper import make_diagonal as make_diagonal
    from tapegraph.autograd.numpy.numpy_wrapper import metadata as metadata

    row_stack = vstack  # noqa: F405
else:
    from functools import partial

    import numpy as _np

    from tapegraph.autograd.numpy.numpy_wrapper import *
    from tapegraph.autograd.numpy.numpy_wrapper import wrapped_names

    def _submodule(module, names):
        name = f"{__name__}.{module.__name__.rpartition('.')[2]}"
        return submodule(name, module.__doc__, names, partial(getattr, module))

    fft = _submodule(_np.fft, wrapped_names(_np.fft))
    linalg = _submodule(_np.linalg, wrapped_names(_np.linalg))
    random = _submodule(
        _np.random, {name: getattr(_np.random, name) for name in _np.random.__all__}
    )
    __all__ = [*numpy_wrapper.__all__, "fft", "linalg", "numpy_vjps", "numpy_vspaces", "random"]

    def __getattr__(name: str) -> object:
        """Return NumPy's attribute for a name that is not wrapped."""
        return getattr(_np, name)
