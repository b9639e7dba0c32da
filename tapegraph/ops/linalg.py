"""Matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.errors import explain
from tapegraph.recording.numpy_functions import implements
from tapegraph.recording.op import Op
from tapegraph.recording.record import apply, tensor_like
from tapegraph.typed import Array, of_two


def rows_of(x: Array) -> Array:
    """View a stack of matrices as one matrix with all their rows."""
    return x.reshape(-1, x.shape[-1])


def is_one_product(a: Array, b: Array) -> bool:
    """Tell whether a stack times one matrix is a single product of the stack's rows."""
    return a.ndim > 2 and b.ndim == 2 and a.size > 0


def _batch_matmul(a: Array, b: Array) -> Any:
    if is_one_product(a, b) and a.shape[-1] == b.shape[0]:
        # One large product instead of one per matrix: the threads of BLAS have work to share.
        return np.matmul(rows_of(a), b).reshape(*a.shape[:-1], b.shape[1])
    return np.matmul(a, b)


MATMUL = Op("matmul", np.matmul)
BATCH_MATMUL = Op("batch_matmul", _batch_matmul)


@implements(np.matmul)
@of_two
def matmul(a: Any, b: Any) -> Any:
    """Matrix product ``a @ b``, as ``numpy.matmul`` defines it.

    Parameters
    ----------
    a : Tensor or array_like, shape (..., n, k) or (k,)
    b : Tensor or array_like, shape (..., k, m) or (k,)
        Leading axes broadcast; operands of three axes or more record a ``batch_matmul``.

    Returns
    -------
    Tensor
        Of shape (..., n, m); a 1-D operand's axis is dropped.

    Raises
    ------
    ValueError
        The inner lengths differ, the leading axes do not broadcast, or an operand is 0-d.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.matmul([[1.0, 2.0]], [[3.0], [4.0]]).data
    array([[11.]])
    """
    a, b = tensor_like("matmul", a, "a"), tensor_like("matmul", b, "b")
    op = BATCH_MATMUL if a.ndim > 2 or b.ndim > 2 else MATMUL
    return _product("matmul", op, a, b)


@of_two
def batch_matmul(a: Any, b: Any) -> Any:
    """Matrix product of stacks of matrices; the leading axes broadcast.

    Parameters
    ----------
    a : Tensor or array_like, shape (..., n, k)
    b : Tensor or array_like, shape (..., k, m)
        At least one of them with three axes or more.

    Returns
    -------
    Tensor
        Of shape (..., n, m).

    Raises
    ------
    ValueError
        Neither operand is a stack, one has fewer than two axes, the inner lengths differ, or the
        leading axes do not broadcast.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.batch_matmul([[[1.0, 2.0]]], [[[3.0], [4.0]]]).data
    array([[[11.]]])
    """
    name = "batch_matmul"
    a, b = tensor_like(name, a, "a"), tensor_like(name, b, "b")
    if max(a.ndim, b.ndim) < 3 or min(a.ndim, b.ndim) < 2:
        raise ValueError(
            explain(
                name,
                f"shapes {a.shape} and {b.shape}",
                "stacks of matrices, (..., n, k) and (..., k, m)",
                "Use tg.matmul for two matrices.",
            )
        )
    return _product(name, BATCH_MATMUL, a, b)


def _product(name: str, op: Op, a: Any, b: Any) -> Any:
    try:
        return apply(op, (a, b))
    except ValueError as error:
        raise ValueError(
            explain(
                name,
                f"shapes {a.shape} and {b.shape}",
                "the last axis of the first to equal the second-to-last (or only) axis of the "
                "second, and leading axes that broadcast",
                "Transpose or reshape an operand.",
            )
        ) from error
