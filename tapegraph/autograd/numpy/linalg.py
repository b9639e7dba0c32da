"""`numpy.linalg`: NumPy's own functions on plain arguments, recorded on traced ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as _np

from tapegraph.autograd.numpy.wrapping import unsupported, wrap_namespace

_COMPLEX = "Its results are complex; for symmetric matrices use eigh."
_NAMES = wrap_namespace(
    _np.linalg,
    {
        f.__name__: unsupported(f"numpy.linalg.{f.__name__}", _COMPLEX)
        for f in (_np.linalg.eig, _np.linalg.eigvals)
    },
    frozenset({_np.linalg.matrix_rank.__name__}),
)

if TYPE_CHECKING:
    from numpy.linalg import *
else:
    __all__ = sorted(_NAMES)
    globals().update(_NAMES)

    def __getattr__(name: str) -> Any:
        """Return what else NumPy has by a name, as it is."""
        return getattr(_np.linalg, name)
