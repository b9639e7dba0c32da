"""Where the engines are known to differ, and why. A record that stops differing fails its test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tapegraph as tg


@dataclass(frozen=True)
class Discrepancy:
    """One call whose gradients the engines do not agree on, and the reason."""

    label: str
    reason: str
    run: Callable[..., Any]
    inputs: tuple[Any, ...]


DENORMALS = (
    "TensorFlow's kernels flush denormal numbers (below 2.2e-308, in float32 1.2e-38) to zero; "
    "NumPy computes with them."
)

DISCREPANCIES = (
    Discrepancy("denormal", DENORMALS, tg.relu, (np.array([5e-324]),)),
    Discrepancy("denormal-float32", DENORMALS, tg.relu, (np.array([1e-40], dtype=np.float32),)),
)
