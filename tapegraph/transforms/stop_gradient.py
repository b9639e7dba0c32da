"""`stop_gradient`: numbers that a derivative takes for constants."""

from __future__ import annotations

from typing import Any

from tapegraph.pytree import mapped
from tapegraph.tensors.batched import Batched
from tapegraph.tensors.dual import Dual
from tapegraph.tensors.tensor import Tensor
from tapegraph.typed import Pytree


def stop_gradient(x: Pytree) -> Pytree:
    """Return the same numbers as constants, through which no derivative of any order or mode flows.

    :param x: A tensor, array or number, or dicts, lists and tuples of them.
    :returns: The same structure, with arrays and numbers unchanged.

    >>> tg.grad(lambda x: x * tg.stop_gradient(x))(3.0)
    3.0
    """
    return mapped(_stopped, x)


def _stopped(x: object) -> Any:
    if isinstance(x, Batched):
        return Batched(_stopped(x.inner), x.tag)
    if isinstance(x, Dual):
        return _stopped(x.primal)
    return x.detach() if isinstance(x, Tensor) else x
