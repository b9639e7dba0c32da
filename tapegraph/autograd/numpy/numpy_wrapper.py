"""The names of `tapegraph.autograd.numpy`: NumPy's, wrapped, and a few of autograd's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as _np

from tapegraph.autograd.numpy.integers import INTEGERS
from tapegraph.autograd.numpy.undispatched import (
    RECORDINGS,
    WITHOUT_GRADIENT,
    ByIndex,
    array_from_args,
    concatenate_args,
    make_diagonal,
    metadata,
)
from tapegraph.autograd.numpy.undispatched import astype as _convert
from tapegraph.autograd.numpy.wrapping import wrap_namespace, wrapped

_NAMES = wrap_namespace(_np, RECORDINGS, WITHOUT_GRADIENT)
_NAMES |= {
    "array_from_args": array_from_args,
    "c_": ByIndex(_np.c_),
    "concatenate_args": concatenate_args,
    "make_diagonal": make_diagonal,
    "metadata": metadata,
    "r_": ByIndex(_np.r_),
    "row_stack": _NAMES["vstack"],
    **INTEGERS,
}
for _submodule in ("fft", "linalg", "random"):
    _NAMES.pop(_submodule, None)
_astype = _NAMES.get(_convert.__name__) or wrapped(_convert)

if TYPE_CHECKING:
    # What type checkers are told of a name is what NumPy tells of it.
    from numpy import *

    row_stack = vstack  # noqa: F405
else:
    __all__ = sorted(_NAMES)
    globals().update(_NAMES)
