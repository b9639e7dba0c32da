"""Warnings of operations that widen float32 to float64."""

from __future__ import annotations

import warnings
from typing import Any

from tapegraph.errors import line_number, place
from tapegraph.recording.linearize import History
from tapegraph.recording.node import Node

# Where Python notes which lines have been warned of; the text names file and line.
_warned: dict[Any, Any] = {}


def warn_of_float64(history: History) -> None:
    """Warn, once a line, of operations that widen float32 parameters' results."""
    (y,) = history.ys
    if (y if y._array is None else y._array).dtype.char != "d":
        return
    for x in history.wanted:
        if (x if x._array is None else x._array).dtype.char == "f":
            break
    else:
        return
    for node in reversed(history.entries):
        given = [x for x in node._inputs if isinstance(x, Node)]
        wide = [x for x in given if x.dtype.char == "d"]
        narrow = [x for x in given if x.dtype.char == "f" and x._requires_grad]
        if not (wide and narrow and node.dtype.char == "d"):
            continue
        file, line = node._code.co_filename, line_number(node._code, node._lasti)
        name = f" {narrow[0].name!r}" if narrow[0].name else ""
        fix = 'Write array.astype("float32")'
        if not wide[0].shape:
            fix = "Write a Python number, float(number), which takes the other's dtype"
        warnings.warn_explicit(
            f"{node._op.name}: received float64 of shape {wide[0].shape} beside float32"
            f"{name} of shape {narrow[0].shape}, so that the result and later ones are "
            f"float64; expected one dtype. {fix}, or make the parameters float64: "
            f'tg.param(data, dtype="float64"). (at {place(file, line)})',
            UserWarning,
            file,
            line or 0,
            registry=_warned,
        )
