"""What is installed, and what differentiates."""

from __future__ import annotations

import argparse
import sys

from tapegraph import commands


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tapegraph", description=__doc__)
    names = parser.add_subparsers(dest="command", required=True)
    names.add_parser("info", help="versions, the engine in force and why, devices, cache")
    functions = names.add_parser("functions", help="list the NumPy functions on tensors")
    functions.add_argument("--markdown", action="store_true", help="print the page docs/numpy.md")
    options = parser.parse_args(arguments)
    if options.command == "info":
        print("\n".join(commands.info()))
    elif options.markdown:
        print(commands.page())
    else:
        print(commands.table([commands.HEADER, *commands.rows()], markdown=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
