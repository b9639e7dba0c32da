"""Commands of ``python -m tapegraph``, and how they print."""

from __future__ import annotations

import os
import platform
import sys

import numpy as np

import tapegraph as tg
from tapegraph.engines import registry
from tapegraph.engines.backend import NUMPY, chosen_by, executor
from tapegraph.engines.engine import EngineDeclined
from tapegraph.fallback.plan.records import off

_STYLES = {"bold": "1", "bad": "31"}


def styled(text: str, style: str) -> str:
    """Return a text ``bold`` or ``bad`` where the terminal shows colours."""
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


def info(load: bool = False) -> list[str]:
    """Return the lines of ``python -m tapegraph info``."""
    found = facts(load).items()
    return [f"{styled(f'{topic:<11}', 'bold')} {text}".rstrip() for topic, text in found]


def facts(load: bool = False) -> dict[str, str]:
    """Return versions, the engine in force and devices, by topic; ``load`` imports each engine."""
    rows = {
        "tapegraph": tg.__version__,
        "python": f"{platform.python_version()} on {platform.machine()} {platform.system()}",
        "numpy": np.__version__,
    }
    usable: dict[str, str] = {}
    details = {"devices": "CPU (NumPy)"}
    left: list[str] = []
    for name in registry.rivals():
        engine = registry.engine(name)
        try:
            if load:
                engine.load()
            rows[name] = engine.version() or "installed"
            usable[name] = engine.title
        except EngineDeclined as declined:
            rows[name] = f"not used: {declined}"
        else:
            if engine.loaded():
                details |= engine.details()
            else:
                rows[name] += ", not imported here"
                left.append(engine.title)
    if left:
        details["devices"] += f"; those of {', '.join(left)} by `tapegraph info --load`"
    chosen = tg.get_backend()
    in_force = chosen if chosen in usable else registry.NATIVE
    if chosen == registry.AUTO and usable:
        in_force += f", and {' or '.join(usable.values())} to see the faster engine"
    rows["backend"] = f"{chosen} ({chosen_by()}); engine in force: {in_force}"
    rows["records"] = f"off: {why}" if (why := off()) else "compiled steps run small arrays in C"
    kernels, threshold = executor()
    rows["forward"] = kernels
    if kernels != NUMPY:
        rows["forward"] += f" for arrays of {threshold} elements and more"
    return rows | details
