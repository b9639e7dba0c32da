"""`CapturedTensor`: what a tensor does inside a captured step, where that differs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapegraph.capture.capture import Capture
from tapegraph.errors import message
from tapegraph.interrupts import in_handler
from tapegraph.ops.elementwise import DETACH
from tapegraph.recording.capture_mode import (
    ConcretizationError,
    forbid_read,
    is_captured,
    settled,
)
from tapegraph.recording.node import Node, is_leaf, kept, numeric
from tapegraph.recording.record import apply, tensor_like
from tapegraph.recording.remote import restore

Eager = Callable[..., Any]
_OUTSIDE = "Return the tensor, and read its number outside."


def _reading(conversion: str, fix: str) -> Callable[..., Any]:
    """Make the method that refuses to read what another run may change, as eagerly or at all."""

    def read(x: Any, capture: Capture, eager: Eager, *args: Any, **options: Any) -> Any:
        numbers = eager(*args, **options)
        forbid_read(x, conversion, fix)
        return numbers

    return read


class CapturedTensor:
    """The methods of a tensor inside a captured step that differ from those of `Tensor`.

    Each takes the tensor, the capture, the method that it stands for, and the arguments. What reads
    numbers refuses those that another run may change; what changes a leaf or its gradient is an
    entry of the program.
    """

    # Numbers that stay in the program

    data = _reading(
        "data",
        "Compute with the tensor itself; for w.data -= step write w.assign((w - step).detach()).",
    )
    item = _reading("item", _OUTSIDE)
    numpy = _reading("numpy", "Compute with the tensor itself, by NumPy's functions.")
    array = _reading("numpy.asarray", "Call NumPy's functions on the tensor itself.")
    bool = _reading("bool", "Write np.where(condition, a, b) for the choice.")
    format = _reading("format", "Return the tensor, and write its numbers outside.")
    reduce = _reading("a copy", "Write tensor.detach() for its numbers.")

    def number(x: Any, capture: Capture, eager: Eager, kind: str) -> Any:
        """Refuse to be a ``float``, ``int`` or ``complex``, and say which."""
        if x._array.size == 1:
            forbid_read(x, kind, _OUTSIDE)
        return eager(kind)

    def detach(x: Any, capture: Capture, eager: Eager) -> Any:
        """Return the tensor without its gradient, as an entry."""
        if not capture.depends(x):
            return eager()
        restore(x)  # an engine may have kept its numbers
        return apply(DETACH, (x,))

    # Gradients, which a program has of leaves alone

    def grad(x: Any, capture: Capture, eager: Eager) -> Any:
        """Return the gradient of a leaf as a tensor."""
        if capture.has_gradient(x) and not in_handler(capture.frame):
            return capture.gradient(kept(x))
        return eager()

    def set_grad(x: Any, capture: Capture, eager: Eager, value: Any) -> None:
        """Give a leaf another gradient."""
        if not capture.has_gradient(x):
            eager(value)
            return
        given: Any = settled(value, x.dtype)
        if given is not None:
            given = tensor_like("grad", given)
            x._check_fits(given)
            given = given if given.dtype == x.dtype else given.astype(x.dtype)
        capture.set_gradient(kept(x), given)

    def zero_grad(x: Any, capture: Capture, eager: Eager) -> None:
        """Set the gradient of a leaf to zero."""
        if capture.has_gradient(x):
            capture.zero_gradient(kept(x))
        else:
            eager()

    def retain_grad(x: Any, capture: Capture, eager: Eager) -> None:
        """Refuse to keep the gradient of a result, of which runs compute none."""
        if x._requires_grad and not is_leaf(x):
            fix = "Compute from a tg.param in its place, and read the grad of that."
            received = "a result in a captured program"
            raise ConcretizationError(message("retain_grad", received, "a parameter", fix))
        eager()

    def set_requires_grad(x: Any, capture: Capture, eager: Eager, wanted: Any) -> None:
        """Let a leaf, as it was and is, need a gradient or none."""
        capture.set_requires_grad(x, wanted)
        eager(wanted)

    # New values

    def assign(x: Any, capture: Capture, eager: Eager, value: Any) -> None:
        """Give a leaf a new value."""
        x._check_assignable()
        given: Any = settled(value, x.dtype)
        numbers: Any = given
        if isinstance(given, Node) and is_captured(given) and not given._requires_grad:
            numbers = given._array
        array = x._fitting(numeric(numbers, "assign", "value"))
        if isinstance(given, Node) and given._array.shape != x.shape:
            given = np.broadcast_to(given, x.shape)  # type: ignore[call-overload]
        capture.assign(x, array, given)

    def replaced_by(x: Any, capture: Capture, eager: Eager, result: Any) -> Any:
        """Let an update in place of a gradient reach the leaf."""
        capture.in_place(x, result)
        return result

    # Leaves that are made of an argument: every run copies its numbers

    def numbers_of(data: Any, capture: Capture, eager: Eager) -> Any:
        """Return the numbers of an argument, and anything else as it is."""
        return data._array if _is_argument(capture, data) else data

    def copied(array: Any, capture: Capture, eager: Eager, data: Any) -> Any:
        """Return a leaf of numbers made from data, or in every run from an argument's."""
        return capture.copy(data, array) if _is_argument(capture, data) else eager(data)


def _is_argument(capture: Capture, data: Any) -> bool:
    return capture.is_input(data) and not data._requires_grad
