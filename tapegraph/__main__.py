"""The command line: the installation, and the functions that differentiate."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

import tapegraph as tg
from tapegraph.engines import registry
from tapegraph.engines.backend import NUMPY, chosen_by, executor
from tapegraph.engines.engine import EngineDeclined
from tapegraph.errors import escaped_lines
from tapegraph.fallback.plan.records import off
from tapegraph.lowering import GAPS
from tapegraph.recording import numpy_functions
from tapegraph.recording.op import Op
from tapegraph.typed import Fun


def main(arguments: list[str] | None = None) -> int:
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
    version = f"tapegraph {tg.__version__}"
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


# How commands print

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


def printed_table(rows: list[tuple[str, ...]], *, markdown: bool = False) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if markdown:
        rows = [rows[0], tuple("-" * w for w in widths), *rows[1:]]
    lines = [" | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(f"| {line} |" if markdown else line.rstrip() for line in lines)


def info(load: bool = False) -> list[str]:
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


# Which NumPy functions differentiate

# The head of `function_rows`.
HEADER = ("NumPy", "tapegraph", "engine")


def function_rows() -> list[tuple[str, ...]]:
    found = []
    for function, names in names_of_functions().items():
        recording = numpy_functions.COUNTERPARTS[function]
        ours = recording.__name__
        public = f"`tg.{ours}`" if callable(getattr(tg, ours, None)) else ""
        native = sorted(native_operations(recording))
        engine = f"native with {', '.join(native)}" if native else "both"
        found.append((", ".join(f"`{name}`" for name in names), public, engine))
    return sorted(found, key=lambda row: row[0].replace("`", ""))


def names_of_functions() -> dict[Fun, list[str]]:
    names = names_of_numpy()  # without the ufuncs of other libraries, registered by tg.defop
    return {f: names[f] for f in numpy_functions.COUNTERPARTS if f in names}


def native_operations(recording: Fun) -> set[str]:
    """Return the operations without lowering that a function's code refers to, at any depth."""
    found: set[str] = set()
    seen: set[FunctionType] = set()
    pending: list[Any] = [recording]
    while pending:
        value = pending.pop()
        if isinstance(value, Op):
            found |= {value.name} & GAPS.keys()
        elif isinstance(value, FunctionType) and value not in seen:
            seen.add(value)
            if hasattr(value, "__wrapped__"):
                pending.append(value.__wrapped__)
            elif value.__module__.startswith("tapegraph.ops"):
                pending += [cell.cell_contents for cell in value.__closure__ or ()]
                pending += _named(value.__code__, value.__globals__)
    return found


def _named(code: CodeType, names: dict[str, Any]) -> Iterator[Any]:
    """Yield the globals that code names, and what it may take of our modules by a name."""
    for name in code.co_names:
        value = names.get(name)
        yield value
        if isinstance(value, ModuleType) and value.__name__.startswith("tapegraph."):
            yield from (getattr(value, attribute, None) for attribute in code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _named(constant, names)


def names_of_numpy() -> dict[Any, list[str]]:
    """Return the public names of NumPy's functions, the function's own first."""
    names: dict[Any, list[str]] = {}
    for module, prefix in (
        (np, "np."),
        (np.linalg, "np.linalg."),
        (np.fft, "np.fft."),
        (np.lib.stride_tricks, "np.lib.stride_tricks."),
    ):
        for name in sorted(dir(module)):
            value = getattr(module, name)
            if callable(value) and not isinstance(value, type) and not name.startswith("_"):
                names.setdefault(value, []).append(prefix + name)
    for function, known in names.items():
        own = getattr(function, "__name__", "")
        known.sort(key=lambda name: (name.rpartition(".")[2] != own, name))
    return names


if __name__ == "__main__":
    sys.exit(main())
