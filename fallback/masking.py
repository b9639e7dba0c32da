"""Keeping some elements of a cotangent and setting the others to zero."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.fallback.absorbing import plain
from tapegraph.ir import Array

_BITS = {4: np.int32, 8: np.int64}


def kept(g: Any, mask: Array) -> Array:
    """Return a floating cotangent where a boolean mask is true, and 0 elsewhere.

    The bits of a number times 1 are the number, NaN and infinities included, and times 0 they are
    0.0: exact, and several times quicker than ``np.where``, which has no vector loop.
    """
    g = plain(g)
    bits: Array = np.multiply(g.view(_BITS[g.dtype.itemsize]), mask)
    return bits.view(g.dtype)
