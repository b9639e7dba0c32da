"""VJP rules: Fourier transforms.

A transform's matrix is symmetric, and the sweep carries conjugates, so a cotangent takes the same
transform.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.fallback.rules import Row
from tapegraph.fallback.strong_zero import to_ndarray
from tapegraph.ops.fft import SWAPPED
from tapegraph.typed import Array, Cotangent


def _rfft(g: Cotangent, y: Array, x: Array, *, axis: int, norm: Any) -> Array:
    # Of which the real part counts.
    return np.fft.fft(to_ndarray(g), n=x.shape[axis], axis=axis, norm=norm)


def _irfft(g: Cotangent, y: Array, x: Array, *, n: int, axis: int, norm: Any) -> Array:
    """All frequencies but the first, and an even length's last, count twice."""
    twice = np.full(n // 2 + 1, 2.0, y.dtype)
    twice[0] = 1.0
    if n % 2 == 0:
        twice[-1] = 1.0
    weights = twice.reshape((-1,) + (1,) * (y.ndim - 1 - axis))
    return np.conj(np.fft.rfft(to_ndarray(g), axis=axis, norm=SWAPPED[norm])) * weights


VJPS: dict[str, Row] = {
    "fft": (lambda g, y, x, *, axes, norm: np.fft.fftn(to_ndarray(g), axes=axes, norm=norm),),
    "ifft": (lambda g, y, x, *, axes, norm: np.fft.ifftn(to_ndarray(g), axes=axes, norm=norm),),
    "rfft": (_rfft,),
    "irfft": (_irfft,),
}
