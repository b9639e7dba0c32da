"""The command line: the installation, and the functions that differentiate."""

from __future__ import annotations

import argparse
import json
import os
import sys

import tapegraph
from tapegraph.commands import HEADER, facts, function_rows, info, printed_table, say, styled
from tapegraph.errors import escaped_lines


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    options = _parser().parse_args(arguments)
    try:
        data, text = options.run(options)
        say(json.dumps(data) if options.json else text)
        if sys.stdout is not None:
            sys.stdout.flush()
        return 0
    except BrokenPipeError:  # whoever read it has seen enough: nor is it to fail at the exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, RuntimeError, OSError) as error:
        text = escaped_lines(f"tapegraph {options.command}: {error}")
        print(styled(text, "bad"), file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tapegraph", description=__doc__)
    version = f"tapegraph {tapegraph.__version__}"
    parser.add_argument("--version", action="version", version=version, help="print the version")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, run: object, text: str) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        one.set_defaults(run=run)
        one.add_argument("--json", action="store_true", help="print JSON, for machines")
        return one

    one = command("info", _info, "versions, the engine in force and why, devices")
    one.add_argument(
        "--load",
        action="store_true",
        help="import TensorFlow, which takes seconds: whether it runs, its devices, its cache",
    )
    command("functions", _functions, "list the NumPy functions on tensors")
    return parser


# What each command says, as data and as text


def _info(options: argparse.Namespace) -> tuple[object, str]:
    return facts(options.load), "\n".join(info(options.load))


def _functions(options: argparse.Namespace) -> tuple[object, str]:
    rows = function_rows()
    first, *rest = printed_table([HEADER, *rows]).splitlines()
    bare = ((cell.replace("`", "") for cell in row) for row in rows)
    data = [dict(zip(HEADER, row, strict=True)) for row in bare]
    return data, "\n".join([styled(first, "bold"), *rest])


if __name__ == "__main__":
    sys.exit(main())
