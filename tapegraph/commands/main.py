"""What is installed, and what differentiates."""

from __future__ import annotations

import argparse
import platform

import numpy as np

import tapegraph as tg
from tapegraph.differentiation import engines
from tapegraph.differentiation.backend import chosen_by
from tapegraph.differentiation.engine import EngineDeclined


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tapegraph", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="versions, the engine in force and why, devices, cache")
    functions = commands.add_parser("functions", help="list the NumPy functions on tensors")
    functions.add_argument("--markdown", action="store_true", help="print the page docs/numpy.md")
    options = parser.parse_args(arguments)
    if options.command == "info":
        print("\n".join(info()))
        return 0
    from tapegraph.commands.functions import run

    return run(markdown=options.markdown)


def info() -> list[str]:
    """Return the lines of ``python -m tapegraph info``."""
    rows = {
        "tapegraph": tg.__version__,
        "python": f"{platform.python_version()} on {platform.machine()} {platform.system()}",
        "numpy": np.__version__,
    }
    usable: dict[str, str] = {}
    details = {"devices": "CPU (NumPy)"}
    for name in engines.rivals():
        engine = engines.engine(name)
        try:
            rows[name] = engine.version()
            usable[name] = engine.title
        except EngineDeclined as declined:
            rows[name] = f"not used: {declined}"
        details |= engine.details()
    chosen = tg.get_backend()
    in_force = chosen if chosen in usable else engines.NATIVE
    if chosen == engines.AUTO and usable:
        in_force += f", and {' or '.join(usable.values())} for what measures faster there"
    rows["backend"] = f"{chosen} ({chosen_by()}); engine in force: {in_force}"
    return [f"{topic:<11} {text}".rstrip() for topic, text in (rows | details).items()]
