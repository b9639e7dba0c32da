"""A graph-compiling autograd: NumPy forward, one TensorFlow graph backward.

Operations run at once in NumPy and record a tape; ``backward()`` lowers the tape to one
TensorFlow graph, or sweeps it natively where TensorFlow cannot run it.
"""

from __future__ import annotations

from pathlib import Path as _Path

_checkout = _Path(__file__).resolve().parent.parent
# Imported from a checkout, the two sibling folders are part of the package all the same:
# lowering/ as tapegraph.lowering, fallback/ as tapegraph.fallback.
if all((_checkout / name).exists() for name in ("pyproject.toml", "lowering", "fallback")):
    __path__.append(str(_checkout))

from tapegraph import testing
from tapegraph._tape import tape, tape_reset
from tapegraph._tensor import Tensor, param, tensor
from tapegraph._value import Value, vsum
from tapegraph.engines import backward, get_backend, last_backward, set_backend, use_backend
from tapegraph.errors import mark_internal as _mark_internal
from tapegraph.forward_mode import Dual, grad, jvp
from tapegraph.gradients import zero_grad
from tapegraph.ops.elementwise import (
    abs,
    add,
    cos,
    div,
    exp,
    gelu,
    log,
    mul,
    neg,
    pow,
    relu,
    sigmoid,
    silu,
    sin,
    sqrt,
    sub,
    tan,
    tanh,
)
from tapegraph.ops.index import gather, tensor_slice, where
from tapegraph.ops.linalg import batch_matmul, matmul
from tapegraph.ops.nn import avg_pool2d, conv2d, layer_norm, max_pool2d, softmax_crossentropy
from tapegraph.ops.reduce import mean, softmax, sum
from tapegraph.ops.shape import concat, reshape, transpose
from tapegraph.optim import SGD
from tapegraph.recording import no_grad

_mark_internal()

__version__ = "0.1.0"

__all__ = [
    "Dual",
    "SGD",
    "Tensor",
    "Value",
    "abs",
    "add",
    "avg_pool2d",
    "backward",
    "batch_matmul",
    "concat",
    "conv2d",
    "cos",
    "div",
    "exp",
    "gather",
    "gelu",
    "get_backend",
    "grad",
    "jvp",
    "last_backward",
    "layer_norm",
    "log",
    "matmul",
    "max_pool2d",
    "mean",
    "mul",
    "neg",
    "no_grad",
    "param",
    "pow",
    "relu",
    "reshape",
    "set_backend",
    "sigmoid",
    "silu",
    "sin",
    "softmax",
    "softmax_crossentropy",
    "sqrt",
    "sub",
    "sum",
    "tan",
    "tanh",
    "tape",
    "tape_reset",
    "tensor",
    "tensor_slice",
    "testing",
    "transpose",
    "use_backend",
    "vsum",
    "where",
    "zero_grad",
]


def __getattr__(name: str) -> object:
    """Import the engines when they are first asked for: ``tapegraph.lowering``."""
    if name in ("fallback", "lowering"):
        import importlib

        return importlib.import_module(f"tapegraph.{name}")
    raise AttributeError(f"module 'tapegraph' has no attribute {name!r}")
