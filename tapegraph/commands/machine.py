"""This machine: the settings in force, whether the engines agree, and how fast a step is."""

from __future__ import annotations

import platform
import time
from typing import Any, NamedTuple, cast

import numpy as np

import tapegraph as tg
from tapegraph.commands import styled
from tapegraph.commands.functions import names_of_functions
from tapegraph.engines import registry
from tapegraph.engines.backend import NUMPY, chosen_by, executor
from tapegraph.engines.engine import EngineDeclined
from tapegraph.fallback.plan.records import off
from tapegraph.recording.node import Node
from tapegraph.testing import check_parity
from tapegraph.typed import Array, Backend, Fun

COMPARED = ("function", "engine", "largest difference", "verdict")
# Symmetric and positive definite, for matrix functions; and above 1, for arccosh.
_BELOW_ONE = np.array([[0.9, 0.2, 0.1], [0.2, 0.8, 0.3], [0.1, 0.3, 0.7]])
_OTHER = np.array([[0.6, 0.1, 0.4], [0.3, 0.5, 0.2], [0.7, 0.4, 0.8]])
TIMED = ("step", "engine", "milliseconds", "faster than eager")
WIDTHS, BATCH = (32, 64, 64, 1), 64
_WARM = 5  # calls of each way that do not count
WORKLOAD = f"a network of widths {WIDTHS}, {BATCH} rows, tanh, mean square, Adam; float64"


# Installation and settings


def info(load: bool = False) -> list[str]:
    """Return the lines of ``python -m tapegraph info``."""
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


# Whether both engines give the same gradients: each NumPy function on a few numbers


class Compared(NamedTuple):
    """The result of comparing one function."""

    function: str
    engine: str
    difference: float
    agrees: bool
    message: str = ""

    def row(self) -> tuple[str, ...]:
        verdict = styled("ok", "good") if self.agrees else styled("DIFFERS", "bad")
        return self.function, self.engine, f"{self.difference:.1e}", verdict


def compare(wanted: list[str]) -> tuple[list[Compared], list[str]]:
    """Compare all functions, or those named; list those that take other arguments."""
    known = names_of_functions()
    unknown = set(wanted) - {name for names in known.values() for name in names}
    if unknown:
        raise ValueError(f"no NumPy function on tensors is called {', '.join(sorted(unknown))}")
    found, left_out = [], []
    for function, names in known.items():
        if wanted and not set(wanted) & set(names):
            continue
        inputs = _inputs(function)
        if inputs is None:
            left_out.append(names[0])
        else:
            found.append(_compared(names[0], function, inputs))
    return sorted(found), sorted(left_out)


def _inputs(function: Fun) -> list[Array] | None:
    """Return one or two arrays at which a function has a gradient, None if there are none."""
    for sample in (_BELOW_ONE, _BELOW_ONE + 1.0):
        for inputs in ([sample], [sample, _OTHER]):
            try:
                with np.errstate(all="ignore"):
                    result = function(*map(tg.param, inputs))
            except Exception:  # whatever it says of arguments that it does not take
                continue
            recorded = isinstance(result, Node) and result._requires_grad
            if recorded and np.isfinite(result._array).all():
                return inputs
    return None


def _compared(name: str, function: Fun, inputs: list[Array]) -> Compared:
    try:
        report = check_parity(function, *inputs)
    except AssertionError as error:
        return Compared(name, "both", float("nan"), False, str(error))
    return Compared(name, report.backend, report.max_abs_difference, True)


# How fast one training step is: eager, compiled, and compiled in TensorFlow


class Timed(NamedTuple):
    """The timing of one way to run the step."""

    name: str
    engine: str
    seconds: float  # the median of all calls

    def row(self, eager: float) -> tuple[str, ...]:
        gain = "" if self.seconds == eager else f"{eager / self.seconds:.1f} times"
        return self.name, self.engine, f"{self.seconds * 1e3:.3f}", gain


def measure(seconds: float) -> list[Timed]:
    """Measure each way for about that many seconds, in turns, the eager one first."""
    ways: list[tuple[str, str, Fun]] = [
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


def _new_step() -> Fun:
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
