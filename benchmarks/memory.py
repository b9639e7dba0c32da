"""What a step or a gradient takes of memory, natively: ``python -m benchmarks.memory [NAME ...]``.

Each contender runs in a process of its own. Counted is what NumPy and Python hold at most during a
step, by ``tracemalloc``, parameters and buffers included; of PyTorch, which holds its own memory,
by how much the process grows.
"""

from __future__ import annotations

import argparse
import gc
import threading
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.contenders import COMPILED, OURS, load
from benchmarks.processes import Process

WORKLOADS = ("mlp", "transformer", "cnn", "gpt")
WAVE_STEPS = 100
ROLLS = 30
SIDES = (16, 64, 256, 512, 1024)
LAYERS, WIDTH, ROWS = 20, 128, 4096


def wave(np: Any, x: Any) -> Any:
    """Take steps of the wave equation from rest, and measure what has become of it."""
    u, before = x, x
    for _ in range(WAVE_STEPS):
        around = np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1)
        u, before = 2 * u - before + 0.1 * (around - 4 * u), u
    return np.sum(u * u)


def rolls(np: Any, x: Any) -> Any:
    """Roll a grid along either axis, again and again."""
    for i in range(ROLLS):
        x = np.roll(x, 1 + i % 3, i % 2)
    return np.sum(x * x)


GRIDS = {"wave": (wave, (512,)), "rolls": (rolls, SIDES)}


class Workload:
    """One of the workloads of training, eager or compiled."""

    def __init__(self, workload: str, contender: str) -> None:
        import tapegraph as tg

        tg.set_backend("native")
        module = load(workload)
        self._step = module.CONTENDERS[contender](module.problem()).step

    def measured(self) -> tuple[float, int]:
        """Return the seconds of a step, and the bytes at its highest point."""
        return measured(self._step)


class Grid:
    """A function of a square grid with its gradient: ours, or autograd's."""

    def __init__(self, name: str, side: int, library: str) -> None:
        f, _ = GRIDS[name]
        start = np.random.default_rng(0).normal(size=(side, side))
        if library == "autograd":
            import autograd
            import autograd.numpy as anp

            step = autograd.value_and_grad(lambda x: f(anp, x))
        else:
            import tapegraph as tg

            tg.set_backend("native")
            step = tg.value_and_grad(lambda x: f(np, x))
        self._step: Callable[[], Any] = lambda: step(start)

    def measured(self) -> tuple[float, int]:
        """Return the seconds of a gradient, and the bytes at its highest point."""
        return measured(self._step)


class Perceptron:
    """A deep perceptron's loss and gradients: ours, or PyTorch's."""

    def __init__(self, library: str) -> None:
        rng = np.random.default_rng(0)
        weights = [rng.normal(size=(WIDTH, WIDTH)) / WIDTH**0.5 for _ in range(LAYERS)]
        x = rng.normal(size=(ROWS, WIDTH))
        self._grows = library == "torch"
        if self._grows:
            import torch

            given, parameters = torch.from_numpy(x), [torch.from_numpy(w) for w in weights]
            for w in parameters:
                w.requires_grad_()
            tanh: Any = torch.tanh
        else:
            import tapegraph as tg

            tg.set_backend("native")
            given, parameters = tg.tensor(x), [tg.param(w) for w in weights]
            tanh = tg.tanh

        def step() -> None:
            h = given
            for w in parameters:
                h = tanh(h @ w)
            loss = (h * h).sum()
            for w in parameters:
                w.grad = None
            loss.backward()

        self._step = step

    def measured(self) -> tuple[float, int]:
        """Return the seconds of a step, and by how much the process grows in the first one."""
        highest = _grown(self._step)  # freed memory may stay with the process
        return _fastest(self._step), highest


def measured(step: Callable[[], Any]) -> tuple[float, int]:
    """Return the seconds of a step, and the bytes that NumPy and Python hold at most during one."""
    tracemalloc.start()
    for _ in range(5):  # until a compiled step is compiled
        step()
    gc.collect()
    tracemalloc.reset_peak()
    step()
    _, highest = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return _fastest(step), highest


def _fastest(step: Callable[[], Any]) -> float:
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def _grown(step: Callable[[], Any]) -> int:
    """Return by how much the process grows at most during a step."""
    gc.collect()
    start, highest, ended = _resident(), 0, threading.Event()

    def watch() -> None:
        nonlocal highest
        while not ended.wait(0.0005):
            highest = max(highest, _resident())

    thread = threading.Thread(target=watch)
    thread.start()
    step()
    ended.set()
    thread.join()
    return highest - start


def alone(what: str, *given: Any) -> tuple[float, int]:
    """Return what a contender measures in a process of its own."""
    process = Process(f"benchmarks.memory:{what}", *given)
    try:
        process.made()
        return process.ask("measured")  # type: ignore[no-any-return]
    finally:
        process.end()


def _row(name: str, found: dict[str, tuple[float, int]]) -> str:
    cells = (f"{who} {high / 1e6:8.1f} MB {s:9.5f} s" for who, (s, high) in found.items())
    return f"{name:12} {'   '.join(cells)}"


def main() -> None:
    p = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    names = (*WORKLOADS, *GRIDS, "perceptron")
    p.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}")
    for name in p.parse_args().names or names:
        if name in GRIDS:
            for side in GRIDS[name][1]:
                libraries = ("tapegraph", "autograd")
                found = {who: alone("Grid", name, side, who) for who in libraries}
                print(_row(f"{name} {side}", found), flush=True)
        elif name == "perceptron":
            print(_row(name, {who: alone("Perceptron", who) for who in ("tapegraph", "torch")}))
        else:
            ways = {"eager": OURS, "compiled": COMPILED}
            print(_row(name, {who: alone("Workload", name, way) for who, way in ways.items()}))


if __name__ == "__main__":
    main()
