"""Commands of ``python -m tapegraph``, and how they print."""

from __future__ import annotations

import os
import sys

_STYLES = {"bold": "1", "good": "32", "bad": "31"}


def styled(text: str, style: str) -> str:
    """Return a text ``bold``, ``good`` or ``bad`` where the terminal shows colours."""
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    shown = wanted and sys.stdout is not None and sys.stdout.isatty()
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if shown else text


def say(text: str) -> None:
    """Print a text, escaping characters that the encoding of stdout lacks."""
    if sys.stdout is not None:  # as where it was closed
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        sys.stdout.write(f"{text.encode(encoding, 'backslashreplace').decode(encoding)}\n")


def printed_table(rows: list[tuple[str, ...]], *, markdown: bool) -> str:
    """Return rows, the first of them the header, as aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if markdown:
        rows = [rows[0], tuple("-" * w for w in widths), *rows[1:]]
    lines = [" | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(f"| {line} |" if markdown else line.rstrip() for line in lines)
