"""What a profile shows: its parts, and the operations and lines that took longest."""

from __future__ import annotations

import linecache
import os
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tapegraph.seeing.profile import Spent

# What fits a screen.
_ROWS, _WIDTH = 12, 60
Row = tuple[str, str, str, str]


def text(parts: Mapping[str, float], tables: Mapping[str, Sequence[Spent]]) -> str:
    """Return the tables as aligned text."""
    told = [_summary(parts)]
    for header, spent in tables.items():
        if spent:
            rows = [("time", "share", "calls", header), *_rows(parts, spent)]
            widths = [max(len(row[i]) for row in rows) for i in range(3)]
            told += [""]
            for *numbers, name in rows:
                cells = [cell.rjust(w) for cell, w in zip(numbers, widths, strict=True)]
                told.append("  ".join([*cells, name]).rstrip())
    return "\n".join(told)


def html(parts: Mapping[str, float], tables: Mapping[str, Sequence[Spent]]) -> str:
    """Return the tables as HTML."""
    told = [f"<p>{escape(_summary(parts))}</p>"]
    for header, spent in tables.items():
        if spent:
            head = "".join(f"<th>{name}</th>" for name in ("time", "share", "calls", header))
            body = "".join(
                "<tr>"
                + "".join(f"<td>{escape(cell)}</td>" for cell in numbers)
                + f'<td style="text-align: left"><code>{escape(name)}</code></td></tr>'
                for *numbers, name in _rows(parts, spent)
            )
            told.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
    return "\n".join(told)


def _summary(parts: Mapping[str, float]) -> str:
    whole = sum(parts.values())
    shares = [
        f"{part} {_seconds(seconds)} ({_percent(seconds, whole)})"
        for part, seconds in parts.items()
        if seconds
    ]
    return f"{_seconds(whole)}: {', '.join(shares)}"


def _rows(parts: Mapping[str, float], spent: Sequence[Spent]) -> Iterator[Row]:
    whole = sum(parts.values())
    rest = spent[_ROWS:]
    for name, seconds, calls in spent[:_ROWS]:
        yield _seconds(seconds), _percent(seconds, whole), str(calls), _shown(name)
    if rest:
        seconds, calls = sum(s.seconds for s in rest), sum(s.calls for s in rest)
        yield _seconds(seconds), _percent(seconds, whole), str(calls), f"{len(rest)} more"


def _shown(name: str) -> str:
    """Return an operation as it is, and a line of a file with its text."""
    file, _, number = name.rpartition(":")
    if not number.isdigit():
        return name
    source = linecache.getline(file, int(number)).strip()
    place = f"{os.path.basename(file)}:{number}"
    source = source if len(source) <= _WIDTH else source[: _WIDTH - 3] + "..."
    return f"{place}  {source}".rstrip()


def _percent(seconds: float, whole: float) -> str:
    return f"{100 * seconds / whole:.0f}%" if whole else "0%"


def _seconds(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= 0.9995 * factor:  # and not 1e+03 us
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"
