"""The command line: installation, differentiable functions, pictures."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tapegraph
from tapegraph.commands import facts, functions, info, printed_table, say, styled
from tapegraph.drawing.picture import draw
from tapegraph.errors import BETWEEN, ORIGINS, escaped, escaped_lines


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    options = _parser().parse_args(arguments)
    try:
        status = int(options.run(options) or 0)
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except BrokenPipeError:  # whoever read it has seen enough: nor is it to fail at the exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except _UsersError as failed:
        traceback.print_exception(failed.error)
        return 2
    except (ValueError, TypeError, RuntimeError, ModuleNotFoundError, OSError) as error:
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
    one = command("functions", _functions, "list the NumPy functions on tensors")
    one.add_argument("--markdown", action="store_true", help="print the page docs/numpy.md")
    one = command("draw", _draw, "draw a function's result, or a compiled step")
    one.add_argument("target", metavar="FILE:FUNCTION", help="it takes no arguments")
    one.add_argument("--out", help="a path that ends in .svg, .png, .dot or .txt")
    one.add_argument("--boxes", type=int, default=24, help="how many at most (%(default)s)")
    one.add_argument("--theme", choices=["light", "dark"], help="both, in an .svg, by default")
    return parser


def _info(options: argparse.Namespace) -> None:
    _print_either(options, facts(options.load), "\n".join(info(options.load)))


def _functions(options: argparse.Namespace) -> None:
    if options.markdown:
        say(functions.page())
    else:
        _print_table(options, functions.HEADER, functions.function_rows())


def _draw(options: argparse.Namespace) -> None:
    drawing = draw(_found(options.target), boxes=options.boxes)
    if options.out:
        drawing.save(options.out, theme=options.theme)
    width, height = drawing.size
    known = {"title": drawing.title, "boxes": drawing.boxes, "width": width, "height": height}
    shown = escaped(options.out) if options.out else str(drawing)
    _print_either(options, {**known, "path": options.out}, shown)


def _found(target: str) -> Any:
    """Return a variable of a file or module, or the result of a function without arguments."""
    place, colon, name = target.rpartition(":")
    if not colon or not name.isidentifier() or not place:
        raise ValueError(f"received {target!r}; expected FILE:FUNCTION, such as model.py:loss")
    names = _names(place)
    if name not in names:
        offered = sorted(n for n, value in names.items() if callable(value) and n[0] != "_")
        raise ValueError(f"{place} has no {name!r}; it has {', '.join(offered) or 'no functions'}")
    found = names[name]
    if not callable(found) or hasattr(found, "explain"):  # a compiled step is drawn itself
        return found
    with _users_code():
        return found()


def _names(place: str) -> dict[str, Any]:
    if place.endswith(".py"):
        sys.path.insert(0, str(Path(place).resolve().parent))
        if not Path(place).is_file():
            raise ValueError(f"there is no file {place}")
        with _users_code():
            return runpy.run_path(place, run_name="tapegraph_draw")
    sys.path.insert(0, "")
    if not _is_module(place):
        raise ValueError(f"there is no module {place}; a file's name ends in .py")
    with _users_code():
        return vars(importlib.import_module(place))


def _is_module(place: str) -> bool:
    if not all(part.isidentifier() for part in place.split(".")):
        return False
    with _users_code():  # packages around a module are imported to find it
        try:
            return importlib.util.find_spec(place) is not None
        except ModuleNotFoundError as error:
            if f"{place}.".startswith(f"{error.name}."):
                return False
            raise


class _UsersError(Exception):
    """An error raised by the user's code."""

    def __init__(self, error: Exception) -> None:
        self.error = error


@contextmanager
def _users_code() -> Iterator[None]:
    """Run the user's code; its errors have a traceback that begins there."""
    try:
        yield
    except Exception as error:
        trace = error.__traceback__
        while trace is not None and ORIGINS[trace.tb_frame.f_code.co_filename] == BETWEEN:
            trace = trace.tb_next
        raise _UsersError(error.with_traceback(trace)) from None


def _print_table(
    options: argparse.Namespace, header: tuple[str, ...], rows: Sequence[tuple[str, ...]]
) -> None:
    data = [dict(zip(header, (c.replace("`", "") for c in row), strict=True)) for row in rows]
    first, *rest = printed_table([header, *rows], markdown=False).splitlines()
    _print_either(options, data, "\n".join([styled(first, "bold"), *rest]))


def _print_either(options: argparse.Namespace, data: object, text: str) -> None:
    say(json.dumps(data) if options.json else text)


if __name__ == "__main__":
    sys.exit(main())
