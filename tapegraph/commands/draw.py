"""Drawing what a function in a file gives: ``tapegraph draw FILE:FUNCTION``."""

from __future__ import annotations

import importlib.util
import runpy
import sys
from pathlib import Path
from typing import Any

from tapegraph.drawing.picture import Drawing
from tapegraph.drawing.picture import draw as draw_result


def draw(target: str, boxes: int) -> Drawing:
    """Return the drawing of what a function without arguments returns, or of a variable.

    - target: ``file.py:name`` or ``module:name``.
    - Raises ValueError: It has another form, or there is no such file, module or name.
    """
    place, colon, name = target.rpartition(":")
    if not colon or not name.isidentifier() or not place:
        raise ValueError(f"received {target!r}; expected FILE:FUNCTION, such as model.py:loss")
    names = _names(place)
    if name not in names:
        offered = sorted(n for n, value in names.items() if callable(value) and n[0] != "_")
        raise ValueError(f"{place} has no {name!r}; it has {', '.join(offered) or 'no functions'}")
    found = names[name]
    if callable(found) and not hasattr(found, "explain"):  # a compiled step is drawn itself
        found = found()
    return draw_result(found, boxes=boxes)


def _names(place: str) -> dict[str, Any]:
    """Run a file, or import a module, and return its names."""
    sys.path.insert(0, "" if not place.endswith(".py") else str(Path(place).resolve().parent))
    if place.endswith(".py"):
        if not Path(place).is_file():
            raise ValueError(f"there is no file {place}")
        return runpy.run_path(place, run_name="tapegraph_draw")
    if importlib.util.find_spec(place) is None:
        raise ValueError(f"there is no module {place}; a file's name ends in .py")
    return vars(importlib.import_module(place))
