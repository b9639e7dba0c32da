"""`numpy.fft`: shifts and frequencies record; the transforms of traced arguments are refused.

Their results are complex.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as _np

from tapegraph.autograd.numpy.wrapping import joined, unsupported, wrap_namespace

_COMPLEX = "Its results are complex; write the transform as a product with np.cos and np.sin."


def fftshift(x: Any, axes: Any = None) -> Any:
    """Record ``np.fft.fftshift``: a roll by half of each axis."""
    return _rolled(x, axes, 1)


def ifftshift(x: Any, axes: Any = None) -> Any:
    """Record ``np.fft.ifftshift``, which undoes `fftshift`."""
    return _rolled(x, axes, -1)


def _rolled(x: Any, axes: Any, sign: int) -> Any:
    x = joined(x)
    axes = tuple(range(x.ndim) if axes is None else _np.atleast_1d(axes).tolist())
    shifts = tuple(sign * (x.shape[axis] // 2) for axis in axes)
    return _np.roll(x, shifts, axes) if axes else x


_RECORDINGS: dict[str, Callable[..., Any]] = {
    **{name: unsupported(f"numpy.fft.{name}", _COMPLEX) for name in _np.fft.__all__},
    "fftfreq": _np.fft.fftfreq,
    "fftshift": fftshift,
    "ifftshift": ifftshift,
    "rfftfreq": _np.fft.rfftfreq,
}
_NAMES = wrap_namespace(_np.fft, _RECORDINGS)

if TYPE_CHECKING:
    from numpy.fft import *
else:
    __all__ = sorted(_NAMES)
    globals().update(_NAMES)

    def __getattr__(name: str) -> Any:
        """Return what else NumPy has by a name, as it is."""
        return getattr(_np.fft, name)
