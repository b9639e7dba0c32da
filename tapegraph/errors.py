"""One voice for every message: what was received, what was expected, how to fix it, and where."""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import Any

# Globals of the library's own modules, by id: the user's line is the first frame outside them.
INTERNAL: set[int] = {id(globals())}


def mark_internal() -> None:
    """Register every tapegraph module imported so far as the library's own."""
    for name, module in list(sys.modules.items()):
        if name == "tapegraph" or name.startswith("tapegraph."):
            INTERNAL.add(id(vars(module)))


def user_frame(frame: FrameType | None = None) -> FrameType:
    """Return the innermost frame outside tapegraph, or the outermost of all."""
    current = frame if frame is not None else sys._getframe(1)
    while id(current.f_globals) in INTERNAL and current.f_back is not None:
        current = current.f_back
    return current


def line_of(code: CodeType, lasti: int) -> str:
    """Return ``file:line`` of the instruction at an offset, looked up only when it is read."""
    line: int | None = code.co_firstlineno
    for start, stop, number in code.co_lines():
        if start <= lasti < stop:
            line = number if number is not None else line
            break
    return f"{code.co_filename}:{line}"


def user_line() -> str:
    """Return ``file:line`` of the user's line that is being run."""
    frame = user_frame(sys._getframe(1))
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def explain(op: str, received: str, expected: str, fix: str = "") -> str:
    """Return one message in the library's form, ending in the user's own line.

    Parameters
    ----------
    op : str
        The operation, as the user calls it.
    received, expected : str
        What came in, and what would have been right.
    fix : str, optional
        What to write instead, as a sentence.
    """
    hint = f" {fix}" if fix else ""
    return f"{op}: received {received}; expected {expected}.{hint} (at {user_line()})"


def kind_of(value: Any) -> str:
    """Describe a value for a message: type, and dtype and shape where it has them."""
    shape = getattr(value, "shape", None)
    dtype = getattr(value, "dtype", None)
    if shape is not None and dtype is not None:
        return f"{type(value).__name__} of dtype {dtype} and shape {tuple(shape)}"
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
