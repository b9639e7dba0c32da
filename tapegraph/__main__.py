"""What is installed, what differentiates, whether the engines agree, how fast, and pictures."""

from __future__ import annotations

import argparse
import importlib.util
import json
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tapegraph.commands import functions, machine, printed_table, styled
from tapegraph.drawing.picture import draw


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options) or 0)
    except (ValueError, TypeError, RuntimeError, ModuleNotFoundError) as error:
        print(styled(f"tapegraph {options.command}: {error}", "bad"), file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tapegraph", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        one.set_defaults(run=run)
        one.add_argument("--json", action="store_true", help="print JSON, for machines")
        return one

    command("info", _info, "versions, the engine in force and why, devices, cache")
    one = command("functions", _functions, "list the NumPy functions on tensors")
    one.add_argument("--markdown", action="store_true", help="print the page docs/numpy.md")
    one = command("parity", _parity, "compare the gradients of both engines, function by function")
    one.add_argument("name", nargs="*", help="such as np.sin; all where none is given")
    one = command("bench", _bench, "time a training step: eager, compiled, and in TensorFlow")
    one.add_argument("--seconds", type=float, default=2.0, help="for each way (%(default)s)")
    one = command("draw", _draw, "draw what a function gives, or a compiled step")
    one.add_argument("target", metavar="FILE:FUNCTION", help="it takes no arguments")
    one.add_argument("--out", help="a path that ends in .svg, .png, .dot or .txt")
    one.add_argument("--boxes", type=int, default=24, help="how many at most (%(default)s)")
    one.add_argument("--theme", choices=["light", "dark"], help="both, in an .svg, by default")
    return parser


def _info(options: argparse.Namespace) -> None:
    _print_either(options, machine.facts(), "\n".join(machine.info()))


def _functions(options: argparse.Namespace) -> None:
    if options.markdown:
        print(functions.page())
    else:
        _print_table(options, functions.HEADER, functions.function_rows())


def _parity(options: argparse.Namespace) -> bool:
    compared, left_out = machine.compare(options.name)
    wrong = [one for one in compared if not one.agrees]
    if options.json:
        print(json.dumps({"compared": [one._asdict() for one in compared], "left_out": left_out}))
        return bool(wrong)
    print(printed_table([machine.COMPARED, *(one.row() for one in compared)], markdown=False))
    for one in wrong:
        print(f"\n{one.function}: {one.message}")
    print(f"\n{len(compared)} functions compared, {len(wrong)} differ.")
    if left_out:
        print(f"Not compared, for they take other arguments: {', '.join(left_out)}.")
    return bool(wrong)


def _bench(options: argparse.Namespace) -> None:
    if not options.seconds > 0:
        raise ValueError(f"received --seconds {options.seconds}; expected a positive number")
    timed = machine.measure(options.seconds)
    if options.json:
        print(json.dumps({"workload": machine.WORKLOAD, "ways": [one._asdict() for one in timed]}))
    else:
        print(f"One step of {machine.WORKLOAD}.\n")
        _print_table(options, machine.TIMED, [one.row(timed[0].seconds) for one in timed])


def _draw(options: argparse.Namespace) -> None:
    drawing = draw(_found(options.target), boxes=options.boxes)
    if options.out:
        drawing.save(options.out, theme=options.theme)
    width, height = drawing.size
    known = {"title": drawing.title, "boxes": drawing.boxes, "width": width, "height": height}
    _print_either(options, {**known, "path": options.out}, options.out or str(drawing))


def _found(target: str) -> Any:
    """Return what a function without arguments returns, or a variable, of a file or module."""
    place, colon, name = target.rpartition(":")
    if not colon or not name.isidentifier() or not place:
        raise ValueError(f"received {target!r}; expected FILE:FUNCTION, such as model.py:loss")
    names = _names(place)
    if name not in names:
        offered = sorted(n for n, value in names.items() if callable(value) and n[0] != "_")
        raise ValueError(f"{place} has no {name!r}; it has {', '.join(offered) or 'no functions'}")
    found = names[name]
    # A compiled step is drawn itself.
    return found() if callable(found) and not hasattr(found, "explain") else found


def _names(place: str) -> dict[str, Any]:
    """Run a file, or import a module, and return its names."""
    if place.endswith(".py"):
        sys.path.insert(0, str(Path(place).resolve().parent))
        if not Path(place).is_file():
            raise ValueError(f"there is no file {place}")
        return runpy.run_path(place, run_name="tapegraph_draw")
    sys.path.insert(0, "")
    if importlib.util.find_spec(place) is None:
        raise ValueError(f"there is no module {place}; a file's name ends in .py")
    return vars(importlib.import_module(place))


def _print_table(
    options: argparse.Namespace, header: tuple[str, ...], rows: Sequence[tuple[str, ...]]
) -> None:
    data = [dict(zip(header, (c.replace("`", "") for c in row), strict=True)) for row in rows]
    first, *rest = printed_table([header, *rows], markdown=False).splitlines()
    _print_either(options, data, "\n".join([styled(first, "bold"), *rest]))


def _print_either(options: argparse.Namespace, data: Any, text: str) -> None:
    """Print for machines or for people."""
    print(json.dumps(data) if options.json else text)


if __name__ == "__main__":
    sys.exit(main())
