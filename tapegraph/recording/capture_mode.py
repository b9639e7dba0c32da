"""Whether operations are captured here (`tapegraph.capture.capture`), and what is refused then."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import partial, wraps
from inspect import signature
from typing import Any, TypeVar, cast

from tapegraph.errors import line_of, message
from tapegraph.interrupts import in_handler

F = TypeVar("F", bound=Callable[..., Any])


class ConcretizationError(TypeError):
    """A number of a captured program would become a plain one, frozen for good."""


BY_VALUE = "Pass an int, a bool or a string, which count by value."
# The scope that records here, a `Capture`.
CAPTURE: ContextVar[Any] = ContextVar("tapegraph_capture", default=None)
capturing = CAPTURE.get
# The operation of the user's whose function runs here, in a captured step.
OPERATION: ContextVar[str | None] = ContextVar("tapegraph_operation", default=None)


def captured_by(method: Callable[..., Any]) -> Callable[[F], F]:
    """Let another method stand for the decorated one in a captured step.

    It takes the object, the capture, the eager method bound to the object, and the arguments.

    A capture is one thread's, and a parameter everybody's: so a tensor keeps its class, and the
    class that holds is looked up where the method is called.
    """

    def decorate(eager: F) -> F:
        def dispatch(self: Any, *args: Any, **options: Any) -> Any:
            capture = capturing()
            if capture is None:
                return eager(self, *args, **options)
            return method(self, capture, partial(eager, self), *args, **options)

        def alone(self: Any) -> Any:  # in half the time
            capture = capturing()
            return eager(self) if capture is None else method(self, capture, partial(eager, self))

        takes_more = len(signature(eager).parameters) > 1
        return cast("F", wraps(eager)(dispatch if takes_more else alone))

    return decorate


def is_captured(*values: Any) -> bool:
    """Return whether one of the values belongs to the capture that goes on here."""
    if any(map(is_batched, values)):
        return True
    capture = capturing()
    return capture is not None and any(_belongs(capture, value) for value in values)


def is_batched(value: Any) -> bool:
    """Return whether a value is one of many examples (`tapegraph.tensors.batched`)."""
    if isinstance(value, (list, tuple)):
        return any(map(is_batched, value))
    if hasattr(type(value), "primal"):
        return is_batched(value.primal)
    return hasattr(type(value), "__tapegraph_batched__")


def _belongs(capture: Any, value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_belongs(capture, v) for v in value)
    return is_float(value) or bool(capture.depends(value))


def is_float(value: Any) -> bool:
    """Return whether it is a float that every run gives anew (`tapegraph.compiling.inputs`)."""
    return hasattr(type(value), "__tapegraph_float__")


def settled(value: Any, dtype: Any) -> Any:
    """Return a float that every run gives anew as a tensor, and anything else as it is."""
    return value.__tapegraph_float__(dtype) if is_float(value) else value


def forbid_read(value: Any, conversion: str, fix: str) -> None:
    """Refuse to read a number that belongs to a captured program.

    A signal handler may: it is no part of the program.
    """
    if is_batched(value):
        received = "the numbers of one example of many"
        raise ConcretizationError(message(conversion, received, "tensors", fix))
    capture = capturing()
    if capture is None:
        return
    if isinstance(value, (list, tuple)):
        for part in value:
            forbid_read(part, conversion, fix)
    elif capture.depends(value) and not (capture.lets_read(value) or in_handler(capture.frame)):
        raise ConcretizationError(message(conversion, _origin(value), "tensors", fix))


def check_fixed(op: str, value: Any, argument: str, fix: str = BY_VALUE) -> None:
    """Refuse a float that every run gives anew where only one that stays the same can be used."""
    if is_float(value) and not value.may_be_read:
        received = f"a float argument of the step for {argument!r}, which every call gives anew"
        raise ConcretizationError(message(op, received, "a number that stays the same", fix))


def check_not_read(op: str, what: str, fix: str) -> None:
    """Refuse to read a plain number that the runs of a captured program read anew."""
    capture = capturing()
    if capture is not None and not in_handler(capture.frame):
        received = f"{what}, in a program that is recorded to be run again with others"
        raise ConcretizationError(message(op, received, "tensors, or arguments", fix))


def check_not_in_operation(op: str) -> None:
    """Refuse a draw inside an operation of the user's: runs draw before it runs."""
    name = OPERATION.get()
    if name is not None:
        received = f"a draw inside the operation {name}, in a captured program"
        fix = f"Draw before it, and pass it what was drawn: {name}(x, tg.{op}(...))."
        raise ConcretizationError(message(op, received, "a draw of the program's own", fix))


def check_outside(op: str, fix: str) -> None:
    """Refuse what would happen during a capture, and in no later run of it."""
    if capturing() is not None:
        received = "a call inside a program that is recorded to be run again"
        raise RuntimeError(message(op, received, "one before or after it", fix))


def _origin(x: Any) -> str:
    code = getattr(x, "_code", None)
    place = f", recorded at {line_of(code, x._lasti)}" if code is not None else ""
    label = f" {x.name!r}" if x.name else ""
    return (
        f"the numbers of {x._op.name}{label} of shape {x._array.shape}{place}, "
        "in a program that is recorded to be run again with others"
    )
