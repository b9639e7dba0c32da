"""Broadcasting, for Jacobian-vector products of one's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def broadcast_f(target: Any, f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Let a Jacobian-vector product of a broadcast argument end in the result's shape.

    :param target: The result.
    :param f: From the tangent of the argument to one that broadcasts to the result's shape.
    """
    return lambda g: broadcast(f(g), target)


def broadcast(x: Any, target: Any) -> Any:
    """Return an array in the shape of another, to which it broadcasts."""
    return np.broadcast_to(x, np.shape(target))
