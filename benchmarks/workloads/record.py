"""What the tape itself costs: recording an entry, finding its graph again, compiling it.

The program is the chain of "tiny"; no peer takes part.
"""

from __future__ import annotations

import time
from typing import Any

import tapegraph as tg
from benchmarks import peers
from benchmarks.protocol import Figure, spread
from benchmarks.workloads import tiny

ABOUT = f"{tiny.ABOUT}; per entry, forward and backward of {tiny.OPS} ops"
# Recording is short and repeated within a round; compiling is long and done once in each.
REPEATS = 20


def measure(rounds: int) -> tuple[dict[str, Figure], dict[str, str]]:
    """Return the figures, and what is left out and why: TensorFlow where it is not installed."""
    reason = peers.why_not("tf.function")
    skipped = {} if reason is None else {"tapegraph tensorflow": reason}
    chain = Chain()
    rates, hits, traces, firsts = [], [], [], []
    for _ in range(rounds):
        rates.append(recorded_per_second(chain))
        if reason is None:
            compiling, first = compiled(chain)
            traces.append(1e3 * compiling)
            firsts.append(1e3 * first)
            hits.append(1e6 * cache_hit(chain))
    recorded = Figure("a second", spread(rates))
    figures = {"entries recorded, NumPy's work included": recorded}
    if reason is None:
        figures |= {
            "cache hit: linearize, signature, lookup": Figure("us an entry", spread(hits)),
            "compile, as last_backward() tells": Figure("ms an entry", spread(traces)),
            "compile, first backward beyond a later one": Figure("ms an entry", spread(firsts)),
        }
    return figures, skipped


class Chain:
    """The chain of "tiny", as a tapegraph user writes it."""

    def __init__(self) -> None:
        problem = tiny.problem()
        self.scale, self.shift = map(tg.param, problem.weights)
        (self.x,) = map(tg.tensor, problem.data)

    def record(self) -> Any:
        h = self.x
        for _ in range(tiny.OPS // 3):
            h = tg.tanh(h * self.scale + self.shift)
        return tg.sum(h)


def recorded_per_second(chain: Chain) -> float:
    start = time.perf_counter()
    for _ in range(REPEATS):
        chain.record()
    return REPEATS * (tiny.OPS + 1) / (time.perf_counter() - start)  # the sum is an entry too


def cache_hit(chain: Chain) -> float:
    """Return the seconds an entry of a backward whose graph is known, without running it."""
    with tg.use_backend("tensorflow"):
        chain.record().backward()
        elapsed = run = 0.0
        for _ in range(REPEATS):
            loss = chain.record()
            elapsed += _backward_seconds(loss)
            run += tg.last_backward().run_seconds
    return (elapsed - run) / REPEATS / tg.last_backward().entries


def compiled(chain: Chain) -> tuple[float, float]:
    """Return seconds an entry: compiling as reported, and what the user waits for the first time.

    The second holds what TensorFlow does when a new graph is run first.
    """
    tg.lowering.cache_clear()
    with tg.use_backend("tensorflow"):
        first = _backward_seconds(chain.record())
        report = tg.last_backward()
        later = _backward_seconds(chain.record())
    return report.compile_seconds / report.entries, (first - later) / report.entries


def _backward_seconds(loss: Any) -> float:
    start = time.perf_counter()
    loss.backward()
    return time.perf_counter() - start
