"""The colours of a picture: one table for light, one for dark."""

from __future__ import annotations

import typing
from typing import Literal

from tapegraph.errors import explain

Theme = Literal["light", "dark"]

# Of a kind of box fill and border, and of everything else.
LIGHT = {
    "ground": "#ffffff",
    "ink": "#1f2430",
    "faint": "#5b6472",
    "edge": "#8a93a3",
    "frame": "#f6f7fa",
    "frame-line": "#c3c9d4",
    "slope": "#b4460e",
    "operation": "#ffffff",
    "operation-line": "#7d8797",
    "param": "#e3eefc",
    "param-line": "#3b78c3",
    "constant": "#eeeff2",
    "constant-line": "#a3abb8",
    "input": "#e2f4e6",
    "input-line": "#35915a",
    "function": "#f1eafb",
    "function-line": "#8257c2",
    "gradient": "#fdebdf",
    "gradient-line": "#cf6a2b",
    "result-line": "#1f2430",
}
DARK = {
    "ground": "#14171d",
    "ink": "#e8ebf1",
    "faint": "#a2abba",
    "edge": "#717b8c",
    "frame": "#1b1f27",
    "frame-line": "#414a59",
    "slope": "#f5a26f",
    "operation": "#252a34",
    "operation-line": "#7d8797",
    "param": "#1b3350",
    "param-line": "#5f9de6",
    "constant": "#2b3039",
    "constant-line": "#6b7482",
    "input": "#17382a",
    "input-line": "#52b57c",
    "function": "#332649",
    "function-line": "#a67fe0",
    "gradient": "#48280f",
    "gradient-line": "#e58a4d",
    "result-line": "#ffffff",
}
# The kinds of boxes.
KINDS = ("operation", "param", "constant", "input", "function", "gradient")
# The colour of what is written, by its role.
INK = {"type": "faint", "note": "faint", "title": "faint", "slope": "slope"}


def colours(theme: Theme) -> dict[str, str]:
    """Return the colours of a theme.

    - Raises ValueError: There is no such theme.
    """
    if theme not in typing.get_args(Theme):
        raise ValueError(explain("draw", f"theme={theme!r}", "'light', 'dark' or None"))
    return DARK if theme == "dark" else LIGHT
