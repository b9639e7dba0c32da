"""NumPy's floating-point errors ignored for one call, wherever a signal falls."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from typing import Any

import numpy as np


def quietly(fn: Callable[..., Any], *args: Any) -> Any:
    """Call a function while NumPy ignores overflow and the like.

    What `numpy.errstate` sets holds in a context, and here in one that is dropped afterwards: its
    end is written in Python, and where an interrupt fell there the errors would stay ignored.
    """
    return copy_context().run(_ignoring, fn, *args)


def _ignoring(fn: Callable[..., Any], *args: Any) -> Any:
    with np.errstate(all="ignore"):
        return fn(*args)
