"""What is installed, what differentiates, whether the engines agree."""

from __future__ import annotations

import argparse
import platform

import numpy as np

import tapegraph as tg
from tapegraph import lowering
from tapegraph.differentiation import engines


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tapegraph", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("info", help="versions, the engine in force and why, devices, cache")
    parity = commands.add_parser("parity", help="run every op case through both engines")
    parity.add_argument("--op", action="append", help="only this operation; may be repeated")
    parity.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    functions = commands.add_parser("functions", help="list the NumPy functions on tensors")
    functions.add_argument("--markdown", action="store_true", help="print the page docs/numpy.md")
    options = parser.parse_args(arguments)
    if options.command == "info":
        print("\n".join(info()))
        return 0
    if options.command == "functions":
        from tapegraph.commands.functions import run as list_functions

        return list_functions(markdown=options.markdown)
    from tapegraph.commands.parity import run

    return run(options.op, markdown=options.markdown)


def info() -> list[str]:
    """Return the lines of ``python -m tapegraph info``."""
    lines = [
        f"tapegraph   {tg.__version__}",
        f"python      {platform.python_version()} on {platform.machine()} {platform.system()}",
        f"numpy       {np.__version__}",
    ]
    try:
        tf = lowering.tensorflow()
    except lowering.Unavailable as error:
        lines.append(f"tensorflow  not used: {error}")
        in_force = "native"
        devices = ["CPU (NumPy)"]
    else:
        lines.append(f"tensorflow  {tf.__version__}")
        in_force = {
            "auto": "native, and TensorFlow for what measures faster there",
            "native": "native",
            "tensorflow": "tensorflow",
        }[tg.get_backend()]
        devices = [d.name for d in tf.config.list_logical_devices()]
    cache = lowering.cache_info()
    return [
        *lines,
        f"backend     {tg.get_backend()} ({engines.chosen_by()}); engine in force: {in_force}",
        f"devices     {', '.join(devices)}",
        f"cache       {cache.size} of {cache.limit} graphs, {cache.hits} hits, "
        f"{cache.compiles} compiles, {cache.evictions} evictions",
    ]
