"""What is traced: tensors that a gradient flows through, and duals, also inside structures."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.pytree import leaves, mapped
from tapegraph.recording.capture_mode import forbid_read, is_captured
from tapegraph.recording.lost_gradients import DIFFERENTIATING
from tapegraph.recording.op import PARAM
from tapegraph.tensors.dual import Dual
from tapegraph.tensors.tensor import Tensor

TENSORS = (Tensor, Dual)
CONTAINERS = (list, tuple, dict)


def isbox(x: Any) -> bool:
    """Return whether a derivative flows through a value: autograd calls such values boxes."""
    return type(x) is Dual or (type(x) is Tensor and x.requires_grad)


def holds_tensor(x: Any) -> bool:
    """Return whether a value is a tensor or dual, or a list, tuple or dict that holds one."""
    if isinstance(x, TENSORS):
        return True
    if isinstance(x, (list, tuple)):
        return any(map(holds_tensor, x))
    return isinstance(x, dict) and any(map(holds_tensor, x.values()))


def holds_box(x: Any) -> bool:
    """Return whether a value is traced, or a list, tuple or dict that holds what is."""
    if isinstance(x, CONTAINERS):
        return any(isbox(leaf) for _, leaf in leaves(x))
    return isbox(x)


def getval(x: Any) -> Any:
    """Return the plain value under all levels of differentiation, and anything else as it is.

    :raises ConcretizationError: It belongs to a captured program.
    """
    while type(x) is Dual:
        x = x.primal
    if type(x) is not Tensor:
        return x
    fix = "Compute with tapegraph.autograd.numpy alone; in place of a @primitive use tg.defop."
    forbid_read(x, "a plain value", fix)
    return number(np.array(x._array))


def number(x: Any) -> Any:
    """Return an array of no axes as a NumPy number, and anything else as it is."""
    return x[()] if isinstance(x, np.ndarray) and x.ndim == 0 else x


def without_constants(x: Any) -> Any:
    """Return a structure in which tensors that nothing flows through are plain arrays."""
    return mapped(lambda leaf: leaf if isbox(leaf) else getval(leaf), x)


def settled(x: Any) -> Any:
    """Return what a transform gives: plain, unless something can still flow through it.

    What was recorded for a level that has ended is no reason to stay a tensor; a `tapegraph.param`
    that it depends on is.
    """
    if type(x) is not Tensor:
        return number(x)
    if is_captured(x):
        return x
    if x.requires_grad and (DIFFERENTIATING.value() or _reads_parameter(x)):
        return x
    return getval(x)


def _reads_parameter(x: Tensor) -> bool:
    seen: set[int] = set()
    pending: list[Any] = [x]
    while pending:
        node = pending.pop()
        if id(node) in seen or not getattr(node, "_requires_grad", False):
            continue
        seen.add(id(node))
        if node._op is PARAM:
            return True
        pending.extend(node._inputs)
    return False
