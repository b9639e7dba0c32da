"""`numpy.fft` on plain arguments; traced ones are refused by name, as its results are complex."""

from __future__ import annotations

from typing import Any

import numpy as _np

from tapegraph.autograd.numpy.wrapping import unsupported, wrap_namespace

_COMPLEX = "Its results are complex; write the transform as a product with np.cos and np.sin."
_NAMES = wrap_namespace(
    _np.fft, {name: unsupported(f"numpy.fft.{name}", _COMPLEX) for name in _np.fft.__all__}
)
globals().update(_NAMES)

__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    """Return what else NumPy has by a name, as it is."""
    return getattr(_np.fft, name)
