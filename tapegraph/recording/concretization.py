"""Numbers that must stay in a program which is recorded whole (`tapegraph.recording.whole`)."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from tapegraph.errors import explain, line_of
from tapegraph.interrupts import in_handler


class ConcretizationError(TypeError):
    """A number of a program that is recorded whole would become a plain one, frozen for good."""


BY_VALUE = "Pass an int, a bool or a string, which count by value."
# The scope that records here, a `Whole`.
CURRENT: ContextVar[Any] = ContextVar("tapegraph_whole", default=None)
current = CURRENT.get
# The operation of the user's whose function runs here, where a program is recorded whole.
OPERATION: ContextVar[str | None] = ContextVar("tapegraph_operation", default=None)


def follows(*values: Any) -> bool:
    """Tell whether a program is recorded whole here that one of the values belongs to."""
    whole = current()
    return whole is not None and any(_belongs(whole, value) for value in values)


def _belongs(whole: Any, value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_belongs(whole, v) for v in value)
    return is_float(value) or bool(whole.depends(value))


def is_float(value: Any) -> bool:
    """Tell whether it is a float that every run gives anew (`tapegraph.compiling.number`)."""
    return hasattr(type(value), "__tapegraph_float__")


def settled(value: Any, dtype: Any) -> Any:
    """Return a float that every run gives anew as a tensor, and anything else as it is."""
    return value.__tapegraph_float__(dtype) if is_float(value) else value


def check_stays(value: Any, conversion: str, fix: str) -> None:
    """Refuse to read a number that belongs to a program which is recorded whole.

    A signal handler may: it is no part of the program.

    Parameters
    ----------
    value
        A tensor, or lists and tuples that may hold some.
    conversion : str
        What reads it, as ``"bool"``.
    fix : str
        What to write instead, as a sentence.

    Raises
    ------
    ConcretizationError
        Names the tensor and where it was recorded.
    """
    whole = current()
    if whole is None:
        return
    if isinstance(value, (list, tuple)):
        for part in value:
            check_stays(part, conversion, fix)
    elif whole.depends(value) and not in_handler(whole.frame):
        raise ConcretizationError(explain(conversion, _origin(value), "tensors", fix))


def check_fixed(op: str, value: Any, argument: str, fix: str = BY_VALUE) -> None:
    """Refuse a float that every run gives anew where only one that stays the same can be used.

    Raises
    ------
    ConcretizationError
        Names the operation and its argument.
    """
    if is_float(value) and not value.may_be_read:
        received = f"a float argument of the step for {argument!r}, which every call gives anew"
        raise ConcretizationError(explain(op, received, "a number that stays the same", fix))


def check_not_read(op: str, what: str, fix: str) -> None:
    """Refuse to read a plain number that the runs of a program recorded whole read anew.

    Raises
    ------
    ConcretizationError
        Names it.
    """
    whole = current()
    if whole is not None and not in_handler(whole.frame):
        received = f"{what}, in a program that is recorded to be run again with others"
        raise ConcretizationError(explain(op, received, "tensors, or arguments", fix))


def check_not_in_operation(op: str) -> None:
    """Refuse a random number drawn by an operation of the user's: runs draw theirs before it runs.

    Raises
    ------
    ConcretizationError
        Names both.
    """
    name = OPERATION.get()
    if name is not None:
        received = f"a draw inside the operation {name}, in a program that is recorded whole"
        fix = f"Draw before it, and pass it what was drawn: {name}(x, tg.{op}(...))."
        raise ConcretizationError(explain(op, received, "a draw of the program's own", fix))


def check_outside(op: str, fix: str) -> None:
    """Refuse what would happen while a program is recorded whole, and in no later run of it."""
    if current() is not None:
        received = "a call inside a program that is recorded to be run again"
        raise RuntimeError(explain(op, received, "one before or after it", fix))


def _origin(x: Any) -> str:
    code = getattr(x, "_code", None)
    place = f", recorded at {line_of(code, x._lasti)}" if code is not None else ""
    label = f" {x.name!r}" if x.name else ""
    return (
        f"the numbers of {x._op.name}{label} of shape {x._array.shape}{place}, "
        "in a program that is recorded to be run again with others"
    )
