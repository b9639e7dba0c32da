"""Objects in notebooks: short HTML, with all text escaped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegraph.errors import escaped_lines

# No output is longer than a screen.
_MOST_LINES = 24
# Characters with a meaning in HTML.
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})


def escape(text: str) -> str:
    """Escape a text as `html.escape`, whose tables take long to import."""
    return escaped_lines(text).translate(_ESCAPES)


def heading(kind: str, *facts: str) -> str:
    told = " · ".join(escape(fact) for fact in facts if fact)
    return f"<div><b>{escape(kind)}</b>{' · ' if told else ''}{told}</div>"


def html_text(lines: str, most: int = _MOST_LINES) -> str:
    shown = escape("\n".join(_abridged(lines.splitlines(), most, "… {:,} more lines …")))
    return f'<pre style="margin: 0.2em 0">{shown}</pre>'


def _abridged(lines: list[str], most: int, note: str) -> list[str]:
    """Return lines, with a note of how many more there are in place of the middle."""
    if len(lines) <= most:
        return lines
    first = (most - 1) * 2 // 3
    last = most - 1 - first
    return [*lines[:first], note.format(len(lines) - first - last), *lines[-last:]]


def array(values: Any, most: int) -> str:
    shown = np.array2string(values, separator=", ", threshold=200, edgeitems=3, precision=5)
    return html_text(shown, most)


def html_table(rows: Sequence[Sequence[str]], header: Sequence[str] = ()) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    lines = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    columns = max(map(len, rows), default=1)
    lines = _abridged(lines, _MOST_LINES, f'<td colspan="{columns}">… {{:,}} more …</td>')
    body = "".join(f"<tr>{line}</tr>" for line in ([head] if header else []) + lines)
    return f"<table>{body}</table>"
