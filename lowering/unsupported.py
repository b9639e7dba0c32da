"""Which operations have no lowering: read before anything of TensorFlow is loaded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tapegraph.engines.engine import EngineDeclined
from tapegraph.recording.op import Op

# Differentiable operations of the table that have no lowering in this version, and why.
GAPS: dict[str, str] = {
    "layer_norm": "runs in the native engine in this version",
    "conv2d": "runs in the native engine in this version",
    "max_pool2d": "runs in the native engine in this version",
    "avg_pool2d": "runs in the native engine in this version",
    "erfcx": "has no node in TensorFlow",
    "log_ndtr": "has no node in TensorFlow, and its gradient needs erfcx",
    "convolve": "runs in the native engine in this version",
    "eigh": "gives vectors up to their sign, and TensorFlow's choice of it is not NumPy's",
    "eig": "gives vectors up to their phase, and TensorFlow's choice of it is not NumPy's",
    "qr": "gives columns up to their sign, and TensorFlow's choice of it is not NumPy's",
    "svd": "gives vectors up to their sign, and TensorFlow's choice of it is not NumPy's",
}


class NotLowered(EngineDeclined):
    """A program holds an operation with no lowering; the message names it."""


class MetNaN(NotLowered):
    """The graph of a program with an operation of the user's gave a NaN, and may have lost zeros.

    Only the native engine keeps zeros through a rule that is not the library's. ``grads`` are the
    graph's numbers.
    """

    grads: list[Any]


def check_gaps(ops: Iterable[Op]) -> None:
    """Refuse an operation that is known to have no lowering.

    :raises NotLowered: Names the operation and says why.
    """
    for op in dict.fromkeys(ops):
        if op.name in GAPS or (op.rules is not None and op.rules.lowering is None):
            raise NotLowered(f"{op.name} {GAPS.get(op.name, 'has no lowering')}")
