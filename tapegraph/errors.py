"""Error and warning messages: received, expected, how to fix it, and the user's line."""

from __future__ import annotations

import importlib
import linecache
import os
import sys
import warnings
from types import CodeType, FrameType
from typing import Any, TypeAlias

import numpy as np

from tapegraph.environment import FOLDERS

# A line of code: what an entry of the tape holds of it.
CodePlace: TypeAlias = "tuple[CodeType, int]"


class LostGradientWarning(UserWarning):
    """A tensor became a plain number, through which no gradient flows, or a result got a `grad`."""


class LostGradientError(TypeError):
    """A gradient would have been lost, such as that of a tensor that became a plain number."""


class ConcretizationError(TypeError):
    """A number of a captured program would become a plain one, the same in every run."""


# Whose code a file holds: the user's, an installed library's, or code that only passes calls on:
# this library's own, NumPy's and Python's.
USER, LIBRARY, BETWEEN = range(3)
_OWN_AND_NUMPYS = tuple(folder + os.sep for folder in (*FOLDERS, os.path.dirname(np.__file__)))
_PYTHONS = os.path.dirname(os.__file__) + os.sep
_INSTALLED = tuple(os.sep + name + os.sep for name in ("site-packages", "dist-packages"))


class _Origins(dict[str, int]):
    def __missing__(self, file: str) -> int:
        if file.startswith("<tapegraph "):  # the lines of a plan, which may be one of many
            return BETWEEN
        path = os.path.abspath(file) if os.path.exists(file) else file
        if path.startswith((*_OWN_AND_NUMPYS, "<frozen ")):
            origin = BETWEEN
        elif any(part in path for part in _INSTALLED):  # without an environment it lies in Python's
            origin = LIBRARY
        else:
            origin = BETWEEN if path.startswith(_PYTHONS) else USER
        self[file] = origin
        return origin


ORIGINS = _Origins()


def user_frame(frame: FrameType | None = None) -> FrameType:
    """Return the innermost frame of the user's own code, or of an installed program's."""
    start = frame if frame is not None else sys._getframe(1)
    for wanted in (USER, LIBRARY):
        current: FrameType | None = start
        while current is not None:
            if ORIGINS[current.f_code.co_filename] == wanted:
                return current
            current = current.f_back
    while start.f_back is not None:
        start = start.f_back
    return start


def user_place() -> CodePlace:
    frame = user_frame(sys._getframe(1))
    return frame.f_code, frame.f_lasti


def line_of(code: CodeType, lasti: int) -> str:
    return place(code.co_filename, line_number(code, lasti))


def line_number(code: CodeType, lasti: int) -> int:
    found = (n for start, stop, n in code.co_lines() if start <= lasti < stop)
    line = next(found, None)
    return code.co_firstlineno if line is None else line


def place(file: str, line: object) -> str:
    """Return ``file:line``, escaped; ``In[7]:line`` for a notebook cell, as in IPython."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    titled = getattr(getattr(shell, "compile", None), "format_code_name", None)
    title = None if titled is None else titled(file)
    if title is None:
        return escaped(f"{file}:{line}")
    _, cell = title
    lines = linecache.getlines(file)  # which is asked for by this name too
    linecache.cache[cell] = (sum(map(len, lines)), None, lines, cell)
    return f"{cell}:{line}"


def user_line() -> str:
    frame = user_frame(sys._getframe(1))
    return place(frame.f_code.co_filename, frame.f_lineno)


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the user's line, by the user's filters: usually once per line."""
    frame = user_frame(sys._getframe(1))
    names = frame.f_globals
    warnings.warn_explicit(
        escaped_lines(message),
        category,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=names.get("__name__") or "<unknown>",
        registry=names.setdefault("__warningregistry__", {}),
    )


def message(op: str, received: str, expected: str, fix: str = "") -> str:
    """Return a message about an argument, ending in the user's line."""
    hint = f" {fix}" if fix else ""
    return sentence(op, f"received {received}; expected {expected}.{hint}")


def sentence(op: str, text: str) -> str:
    """Return a message about a state, ending in the user's line."""
    return escaped_lines(f"{op}: {text} (at {user_line()})")


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an error: in its traceback, or before Python 3.11 after its message."""
    if sys.version_info >= (3, 11):
        error.add_note(note)
    elif error.args and isinstance(error.args[0], str):
        error.args = (f"{error.args[0]}\n{note}", *error.args[1:])


# What to do with a part of a structure that is no number.
STATIC = "make it a static field of a dataclass: field(metadata={'static': True})"


def kind_of(value: object) -> str:
    """Describe a value for a message: its type, and dtype and shape if it has them."""
    shape = getattr(value, "shape", None)
    dtype = getattr(value, "dtype", None)
    if shape is not None and dtype is not None:
        return f"{type(value).__name__} of dtype {dtype} and shape {tuple(shape)}"
    text = " ".join(repr(value).split())
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


def scipy_module(name: str, op: str, requirement: str = "scipy") -> Any:
    """Return one of SciPy's modules, or raise an ImportError that says how to install it."""
    try:
        return importlib.import_module(f"scipy.{name}")
    except ImportError:
        received = "a call in an environment without SciPy"
        fix = f"Install it: pip install {requirement}."
        raise ImportError(message(op, received, "SciPy", fix)) from None


def check_callable(op: str, f: object, argument: str = "", fix: str = "") -> None:
    if not callable(f):
        received = f"{kind_of(f)} for {argument!r}" if argument else kind_of(f)
        raise TypeError(message(op, received, "a function", fix))


def path_of(op: str, path: object, fix: str) -> str:
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise TypeError(message(op, f"{kind_of(path)} for 'path'", "a path", fix))
    return os.fsdecode(path)


# Other people's text, such as names and paths, in code, terminals and markup


def escaped(text: str) -> str:
    """Return a text as one line: each unprintable character as in `repr`, backslashes unchanged."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def escaped_lines(text: str) -> str:
    """Escape each line of a text, except its tabs."""
    if text.isprintable():
        return text
    return "".join(part if part in ("\n", "\t") else escaped(part) for part in text)
