"""Products of matrices in which a zero cotangent absorbs what it meets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def strong_product(
    a: Any, b: Any, *, cotangent_first: bool, product: Callable[[Any, Any], Any]
) -> Any:
    """Multiply matrices so that a zero of the cotangent adds nothing, whatever it is paired with.

    Finite factors are multiplied as ever; what the others add is told by counting, for each
    element, the products that are inf, -inf and NaN.

    ``product`` multiplies matrices of numbers or of conditions, which count as 0 and 1.
    """
    g, h = (a, b) if cotangent_first else (b, a)

    def count(of_g: Any, of_h: Any) -> Any:
        return product(of_g, of_h) if cotangent_first else product(of_h, of_g)

    up, down = g == np.inf, g == -np.inf
    nan_of_h = np.isnan(h)
    nan = count(g != 0, nan_of_h) + count(np.isnan(g), nan_of_h | ~nan_of_h)
    nan = nan + count(up | down, h == 0)
    plus = count(g > 0, h == np.inf) + count(g < 0, h == -np.inf)
    plus = plus + count(up, h > 0) + count(down, h < 0)
    minus = count(g > 0, h == -np.inf) + count(g < 0, h == np.inf)
    minus = minus + count(up, h < 0) + count(down, h > 0)
    total = product(np.where(np.isfinite(a), a, 0.0), np.where(np.isfinite(b), b, 0.0))
    total = np.where(plus > 0, np.inf, total)
    total = np.where(minus > 0, -np.inf, total)
    return np.where((nan > 0) | ((plus > 0) & (minus > 0)), np.nan, total)
