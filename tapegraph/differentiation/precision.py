"""A warning where float64 beside float32 parameters has made float64 of all that follows."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from tapegraph.errors import line_number, place
from tapegraph.recording.node import Node

# Where Python notes which lines have been warned of; the text names file and line.
_registry: dict[Any, Any] = {}


def warn_of_float64(y: Node, entries: Sequence[Any], wanted: Iterable[Any]) -> None:
    """Warn, once a line, of operations that widen what was computed from float32 parameters.

    :param y: What is differentiated.
    :param entries: What it was computed by, the newest first.
    :param wanted: The parameters.
    """
    if y._array.dtype.char != "d" or all(x._array.dtype.char != "f" for x in wanted):
        return
    for node in reversed(entries):
        given = [x for x in node._inputs if isinstance(x, Node)]
        wide = [x for x in given if x._array.dtype.char == "d"]
        narrow = [x for x in given if x._array.dtype.char == "f" and x._requires_grad]
        if wide and narrow and node._array.dtype.char == "d":
            _warn(node, wide[0], narrow[0])


def _warn(node: Any, wide: Node, narrow: Node) -> None:
    file, line = node._code.co_filename, line_number(node._code, node._lasti)
    name = f" {narrow.name!r}" if narrow.name else ""
    fix = 'Write array.astype("float32")'
    if not wide._array.shape:
        fix = "Write a Python number, float(number), which takes the other's dtype"
    warnings.warn_explicit(
        f"{node._op.name}: received float64 of shape {wide._array.shape} beside float32{name} of "
        f"shape {narrow._array.shape}, so that the result and what follows are float64; expected "
        f'one dtype. {fix}, or make the parameters float64: tg.param(data, dtype="float64"). '
        f"(at {place(file, line)})",
        UserWarning,
        file,
        line or 0,
        registry=_registry,
    )
