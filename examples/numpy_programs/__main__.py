"""Run ten NumPy programs on plain arrays and on tensors, and check values and gradients.

You learn that a function written for NumPy needs no change to be differentiated: the programs
beside this file import NumPy alone. Values must be equal to rounding, and every element of every
gradient must agree with finite differences. The two programs that loop are run with `tg.scan` in
place of the loop too, around the same NumPy code for one turn. With `--compile` each gradient is
also run as a compiled program, which must give the same. Exits with status 1 where one does not.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import logging
import pkgutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import tapegraph as tg

FOLDER = Path(__file__).parent


def programs() -> Iterator[tuple[str, ModuleType, Callable[..., Any]]]:
    """Every program beside this file: its name, its module, and what to run with gradients."""
    names = [m.name for m in pkgutil.iter_modules([str(FOLDER)]) if not m.name.startswith("_")]
    prefix = f"{__package__}." if __package__ else ""  # run as a module, or as a folder
    scans = importlib.import_module(prefix + "_scans").SCANS
    for name in sorted(names):
        module = importlib.import_module(prefix + name)
        yield name, module, module.program
        if name in scans:
            yield f"{name}:scan", module, functools.partial(scans[name], module)


def engines() -> list[str]:
    """The engines that are installed."""
    try:
        tg.lowering.tensorflow()
    except tg.lowering.Unavailable:
        return ["native"]
    return ["native", "tensorflow"]


def gradients(
    program: Callable[..., Any], arrays: list[np.ndarray], compile: bool
) -> list[np.ndarray]:
    """Return the gradients of a program, summed; as a compiled program's third call gives them."""
    leaves = [tg.param(a) for a in arrays]

    def gradient() -> None:
        tg.zero_grad(leaves)
        tg.sum(program(*leaves)).backward()

    if compile:
        gradient = tg.compile(gradient)
        gradient(), gradient()  # which are recorded and compared
    gradient()
    return [leaf.grad for leaf in leaves if leaf.grad is not None]


def by_compiling(program: Callable[..., Any], arrays: list[np.ndarray], backend: str) -> float:
    """Return the largest difference of compiled gradients from eager ones."""
    with tg.use_backend(backend):
        eager, compiled = (gradients(program, arrays, compile) for compile in (False, True))
    pairs = list(zip(compiled, eager, strict=True))
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
    return max(float(np.max(np.abs(ours - theirs))) for ours, theirs in pairs)


def check(
    plain: np.ndarray, program: Callable[..., Any], arrays: list[np.ndarray], backend: str
) -> tuple[str, float, float, int]:
    """Return who ran, the worst value, the worst gradient and how many elements were checked."""
    recorded = program(*map(tg.param, arrays))
    np.testing.assert_allclose(recorded.numpy(), plain, rtol=1e-11, atol=1e-12)
    difference = float(np.max(np.abs(recorded.numpy() - plain)))
    report = tg.testing.check_gradients(program, *arrays, backend=backend, rtol=1e-4, atol=1e-6)
    ran = tg.last_backward().backend + (" *" if tg.last_backward().backend != backend else "")
    return ran, difference, report.max_abs_error, report.checked


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m examples.numpy_programs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--backend", choices=["native", "tensorflow"], help="one engine (default: all installed)"
    )
    parser.add_argument(
        "--compile",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="compare compiled gradients with eager ones too",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the programs' inputs")
    args = parser.parse_args()

    chosen = [args.backend] if args.backend else engines()
    head = f"{'program':<20} {'engine':<11} {'values':>9} {'gradients':>10} {'elements':>9}"
    print(head + f" {'compiled':>9}" * args.compile)
    warnings.filterwarnings("ignore", "backward ran in the native engine")  # said below
    logging.getLogger("tapegraph").setLevel(logging.ERROR)
    failures, notes = [], []
    for name, module, program in programs():
        arrays = module.inputs(np.random.default_rng(args.seed))
        plain = module.program(*arrays)
        for backend in chosen:
            try:
                ran, value, gradient, elements = check(plain, program, arrays, backend)
                reason = tg.last_backward().reason
                last = f" {by_compiling(program, arrays, backend):9.1e}" if args.compile else ""
            except (AssertionError, TypeError) as error:
                failures.append(f"{name}: {error}")
                print(f"{name:<20} {backend:<11} FAILED")
            else:
                print(f"{name:<20} {ran:<11} {value:9.1e} {gradient:10.1e} {elements:9}{last}")
                if ran.endswith("*"):
                    notes.append(f"* {name}: {reason}")
    print(*notes, *failures, sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
