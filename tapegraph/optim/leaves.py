"""Access to parameters and gradients for optimizers.

A parameter is a `Tensor` leaf or a `Value`. Its number and gradient are arrays, inside a captured
program tensors; those of many Values are made at once.
"""

from __future__ import annotations

from functools import partial
from operator import setitem
from typing import Any, TypeAlias

import numpy as np

from tapegraph.arrays import is_shared, own, read_only
from tapegraph.recording.node import as_leaf
from tapegraph.recording.scopes import Setting, recorder
from tapegraph.recording.values import Change, new_numbers
from tapegraph.scalars.recorder import GRAD, recorder_of
from tapegraph.tensors.tensor import Tensor
from tapegraph.tensors.value import Value
from tapegraph.typed import Array

Leaf: TypeAlias = "Tensor | Value"
# In a list, a dict or a model (`tapegraph.tensors.parameters`).
Leaves: TypeAlias = object
# What stands between gradients and those who use them: ``average(leaves)`` lets each have the
# average of its gradients over all processes, ``step(optimizer)`` takes a step with such ones.
AVERAGING: Setting[Any] = Setting("tapegraph_averaging", default=None)


def gradient_of(p: Leaf, *, rows: bool) -> Any:
    """Return a parameter's gradient, which the caller must not change; None if frozen.

    It is an ndarray, with ``rows`` also a `RowSparse` that holds each row once, or a captured
    tensor.
    """
    if isinstance(p, Value):
        return np.asarray(p.grad)
    if not p.requires_grad:  # momentum would move it, and weight decay
        return None
    return recorder().gradient_for_step(p, rows)


def gradients_of(params: list[Leaf], *, rows: bool) -> list[Any]:
    """Return each parameter's gradient as `gradient_of` does; those of Values as tensors."""
    values = [p for p in params if isinstance(p, Value)]
    capture = recorder().capture
    if not values or capture is None:
        return [gradient_of(p, rows=rows) for p in params]
    numbers = recorder_of(capture)
    found = iter(numbers.tensors([[numbers.index(p, GRAD)] for p in values], ()))
    return [next(found) if isinstance(p, Value) else gradient_of(p, rows=rows) for p in params]


def replace_gradient(p: Leaf, grad: Any) -> None:
    if isinstance(p, Value):
        p.grad = grad
    else:
        recorder().replace_gradient(p, grad)


def data_of(p: Leaf) -> Array:
    """Return a parameter's or a slot's numbers, which the caller must not change."""
    return read_only(np.asarray(p.data) if isinstance(p, Value) else p._array)


def rows_set(p: Any, rows: Array, values: Array) -> list[Change]:
    """Give some rows of a parameter or a slot new numbers."""
    # Whoever else holds the array keeps the old numbers.
    table = own(p._array) if is_shared(p) else p._array
    return [partial(setitem, table, rows, values), *new_numbers(p, table)]


def fresh(array: Any, taken: set[int]) -> Array:
    """Return a rule's result as an array that nobody else holds: itself, if it is new."""
    if type(array) is np.ndarray and array.base is None and id(array) not in taken:
        taken.add(id(array))
        return array
    return own(array)


def slot(array: Any) -> Tensor:
    """Make a constant that holds a part of an optimizer's state."""
    return as_leaf(own(array))


def real_and_imaginary(z: Any) -> Any:
    """Return real and imaginary parts along a new last axis."""
    return np.stack([z.real, z.imag], axis=-1)


def of_parts(parts: Any) -> Any:
    return parts[..., 0] + 1j * parts[..., 1]
