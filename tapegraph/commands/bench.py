"""How fast one training step is on this machine: eager, compiled, and compiled in TensorFlow."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np

import tapegraph as tg
from tapegraph.engines import registry
from tapegraph.engines.engine import EngineDeclined
from tapegraph.typed import Backend

_HEADER = ("step", "engine", "milliseconds", "faster than eager")
WIDTHS, BATCH = (32, 64, 64, 1), 64
_WARM = 5  # calls of each way that do not count
WORKLOAD = f"a network of widths {WIDTHS}, {BATCH} rows, tanh, mean square, Adam; float64"


class Timed(NamedTuple):
    """One way to run the step."""

    name: str
    engine: str
    seconds: float  # the median of all calls

    def row(self, eager: float) -> tuple[str, ...]:
        """Return it as a row of a table, beside the seconds of the eager step."""
        gain = "" if self.seconds == eager else f"{eager / self.seconds:.1f} times"
        return self.name, self.engine, f"{self.seconds * 1e3:.3f}", gain


def measure(seconds: float) -> list[Timed]:
    """Measure each way for about so long, in turns, the eager one first."""
    ways: list[tuple[str, str, Callable[..., Any]]] = [
        ("eager", registry.NATIVE, _new_step()),
        ("compiled", registry.NATIVE, tg.compile(_new_step())),
    ]
    for name in registry.rivals():
        step = tg.compile(_new_step())
        if _runs_in(name, step):
            ways.append(("compiled", name, step))
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(BATCH, WIDTHS[0])), rng.normal(size=(BATCH, WIDTHS[-1]))
    taken: list[list[float]] = [[] for _ in ways]
    end = 0.0
    while len(taken[0]) <= _WARM or time.perf_counter() < end:
        for (_, engine, step), times in zip(ways, taken, strict=True):
            with tg.use_backend(cast(Backend, engine)):
                start = time.perf_counter()
                step(x, y)
                times.append(time.perf_counter() - start)
        if len(taken[0]) == _WARM:
            end = time.perf_counter() + seconds * len(ways)
    medians = [float(np.median(times[_WARM:])) for times in taken]
    return [Timed(name, e, s) for (name, e, _), s in zip(ways, medians, strict=True)]


def _runs_in(engine: str, step: Any) -> bool:
    """Return whether an engine is there, and runs the compiled step."""
    try:
        registry.engine(engine).load()
    except EngineDeclined:
        return False
    x, y = np.ones((BATCH, WIDTHS[0])), np.ones((BATCH, WIDTHS[-1]))
    with tg.use_backend(cast(Backend, engine)):
        for _ in range(3):
            step(x, y)
    report = tg.last_backward()
    return report is not None and report.backend == engine


def _new_step() -> Callable[..., Any]:
    rng = np.random.default_rng(0)
    layers = [
        (tg.param(rng.normal(size=(m, n)) / m**0.5), tg.param(np.zeros(n)))
        for m, n in zip(WIDTHS, WIDTHS[1:], strict=False)
    ]
    optimizer = tg.Adam([p for layer in layers for p in layer], 1e-3)

    def step(x: Any, y: Any) -> Any:
        for weights, bias in layers[:-1]:
            x = tg.tanh(x @ weights + bias)
        weights, bias = layers[-1]
        loss = tg.mean((x @ weights + bias - y) ** 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step
