"""What makes two programs the same: structure, never values."""

from __future__ import annotations

from typing import Any

import numpy as np

Key = tuple[Any, ...]


def identity(value: Any) -> Any:
    """Return what two attributes share only where they are the same: 1, 1.0 and True are not.

    Python takes those for equal, as it does 0.0 and -0.0.
    """
    kind = type(value)
    if kind is tuple:
        return tuple(map(identity, value))
    if isinstance(value, (float, np.floating)):
        return kind, float(value).hex()
    return kind, value


def scalar_bits(scalars: list[float]) -> Any:
    """Return scalars as int64 bit patterns: NaN equals itself, and -0.0 is not 0.0."""
    return np.array(scalars, dtype=np.float64).view(np.int64)
