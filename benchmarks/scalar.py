"""The scalar engine against micrograd, on micrograd's own demo: ``python -m benchmarks.scalar``.

Network 2-16-16-1 with relu, 100 points of two moons, max-margin loss and L2. A step is forward,
backward, SGD update, and the loss read as a float. Both engines run the same lines of code; the
third contender writes the same network with ``vsum``, one node for each neuron's sum.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tapegraph as tg

try:
    from micrograd.engine import Value as MicrogradValue
except ImportError:
    MicrogradValue = None

SIZES = (2, 16, 16, 1)
POINTS = 100
RATE = 0.05
DECAY = 1e-4
WARMUPS = 3
PEER = "micrograd"
HOW_TO_INSTALL = f"{PEER} is not installed, so nothing is compared: pip install tapegraph[bench]"

Sum = Callable[[Iterable[Any], Any], Any]


def one_node(terms: Iterable[Any], start: Any) -> Any:
    """Return what ``sum(terms, start)`` is, as one node."""
    return tg.vsum([start, *terms])


def moons(points: int, rng: random.Random) -> tuple[list[list[float]], list[float]]:
    """Return two interleaved noisy half circles, labelled 1 and -1."""
    rows, labels = [], []
    for i in range(points):
        angle = math.pi * rng.random()
        x, y = math.cos(angle), math.sin(angle)
        if i % 2:
            x, y = 1.0 - x, 0.5 - y
        rows.append([x + rng.gauss(0.0, 0.1), y + rng.gauss(0.0, 0.1)])
        labels.append(1.0 if i % 2 else -1.0)
    return rows, labels


class Neuron:
    """micrograd's neuron, for any engine's Value and any way of summing."""

    def __init__(self, value: Any, total: Sum, fan_in: int, relu: bool, rng: random.Random) -> None:
        self.w = [value(rng.uniform(-1.0, 1.0)) for _ in range(fan_in)]
        self.b = value(0.0)
        self.total = total
        self.relu = relu

    def __call__(self, x: list[Any]) -> Any:
        act = self.total((w * a for w, a in zip(self.w, x, strict=True)), self.b)
        return act.relu() if self.relu else act


class Contender:
    """One engine with its own copy of the network, from the same seed."""

    def __init__(self, name: str, value: Any, total: Sum) -> None:
        rng = random.Random(0)
        self.name = name
        self.value = value
        self.total = total
        self.rows, self.labels = moons(POINTS, rng)
        self.layers = [
            [Neuron(value, total, fan_in, fan_out != 1, rng) for _ in range(fan_out)]
            for fan_in, fan_out in zip(SIZES, SIZES[1:], strict=False)
        ]
        self.parameters = [
            p for layer in self.layers for neuron in layer for p in (*neuron.w, neuron.b)
        ]
        self.seconds: list[float] = []

    def forward(self, x: list[Any]) -> Any:
        for layer in self.layers:
            x = [neuron(x) for neuron in layer]
        return x[0]

    def step(self) -> float:
        """Take one step of training and return the loss before it."""
        scores = [self.forward([self.value(a) for a in row]) for row in self.rows]
        margins = [(1 + -y * s).relu() for y, s in zip(self.labels, scores, strict=True)]
        loss = self.total(margins, 0.0) * (1.0 / POINTS)
        loss = loss + DECAY * self.total((p * p for p in self.parameters), 0.0)
        for p in self.parameters:
            p.grad = 0.0
        loss.backward()
        for p in self.parameters:
            p.data -= RATE * p.grad
        return float(loss.data)

    def timed_step(self) -> None:
        # Each contender pays for its own garbage only.
        gc.collect()
        start = time.perf_counter()
        self.step()
        self.seconds.append(time.perf_counter() - start)


def contenders() -> list[Contender]:
    """Return tapegraph twice and, where installed, micrograd."""
    found = [
        Contender("tapegraph", tg.Value, sum),
        Contender("tapegraph vsum", tg.Value, one_node),
    ]
    if MicrogradValue is not None:
        found.append(Contender(PEER, MicrogradValue, sum))
    return found


def check_equal(runners: Sequence[Contender]) -> None:
    """Take one step with each; raise SystemExit unless losses and gradients agree."""
    losses = [runner.step() for runner in runners]
    first = runners[0]
    for runner, loss in zip(runners[1:], losses[1:], strict=True):
        pairs = [(losses[0], loss)]
        pairs += [
            (p.grad, q.grad) for p, q in zip(first.parameters, runner.parameters, strict=True)
        ]
        for ours, theirs in pairs:
            if not math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-12):
                raise SystemExit(f"{first.name} and {runner.name} differ: {ours!r}, {theirs!r}")


def run(rounds: int = 15, warmups: int = WARMUPS) -> dict[str, Any]:
    """Check, warm up, time, and return the figures; times are in seconds."""
    runners = contenders()
    check_equal(runners)
    for _ in range(warmups + rounds):
        for runner in runners:
            runner.timed_step()
    result: dict[str, Any] = {"workload": "scalar", "rounds": rounds, "seconds": {}, "ratios": {}}
    seconds = {runner.name: runner.seconds[warmups:] for runner in runners}
    for name, times in seconds.items():
        result["seconds"][name] = statistics.median(times)
        if PEER in seconds and name != PEER:
            ratios = [a / b for a, b in zip(times, seconds[PEER], strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
            result["ratios"][name] = {"median": middle, "quartiles": [low, high]}
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; return 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scalar", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="timed rounds (default 15)")
    parser.add_argument("--quick", action="store_true", help="5 rounds after 1 warm-up")
    parser.add_argument("--json", metavar="FILE", help="also write the figures to FILE")
    options = parser.parse_args(argv)
    if options.rounds < 2:
        parser.error("--rounds must be at least 2, for there are no quartiles of one")

    result = run(5, 1) if options.quick else run(options.rounds)
    network = "-".join(map(str, SIZES))
    print(f"scalar: {network} network, {POINTS} points, {result['rounds']} rounds")
    for name, seconds in result["seconds"].items():
        line = f"{name:16}{1e3 * seconds:9.1f} ms a step"
        ratio = result["ratios"].get(name)
        if ratio is not None:
            low, high = ratio["quartiles"]
            middle = ratio["median"]
            line += (
                f"   time over {PEER}'s {middle:.4f} ({low:.4f} to {high:.4f})"
                f"   {1 / middle:.1f} times faster ({1 / high:.1f} to {1 / low:.1f})"
            )
        print(line)
    if MicrogradValue is None:
        print(HOW_TO_INSTALL, file=sys.stderr)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=2)
            file.write("\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
