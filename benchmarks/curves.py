"""How many steps are done after how long: one contender's curve, and what two of them tell.

``python -m benchmarks.curves WORKLOAD ENGINE SECONDS`` is the process of one contender. It steps
for so long and prints its curve as JSON: importing the engine and compiling are in it.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from benchmarks.workloads import WORKLOADS

WITH_XLA = "tensorflow xla"
ENGINES = ("native", "tensorflow", WITH_XLA)
AUTO = "auto"
REAL_CALLS = 3  # until the program runs
# A point where time has grown by so much, and by no less than this.
GROWTH, LEAST = 0.01, 1e-3


class Curve(NamedTuple):
    """Seconds since the first call, steps done by then (none where XLA may not), what ran last."""

    seconds: list[float]
    steps: list[int]
    ran: str

    def until(self, steps: Any) -> Any:
        """Return when so many steps were done, elementwise; infinity where they never were."""
        return np.interp(steps, [0, *self.steps], [0.0, *self.seconds], right=np.inf)

    def step(self, start: float) -> float:
        """Return the seconds of a step from some moment on; NaN where there was none."""
        first = int(np.searchsorted(self.seconds, start))
        if first >= len(self.seconds) - 1:
            return math.nan
        seconds = self.seconds[-1] - self.seconds[first]
        return seconds / (self.steps[-1] - self.steps[first])

    @property
    def last_step(self) -> float:
        """The seconds of a step in the last quarter."""
        return self.step(0.75 * self.seconds[-1])


def over_best(auto: Curve, engines: Sequence[Curve], start: float = 0.5) -> tuple[float, float]:
    """Return the greatest ratio of all time until a step to the best engine's, and that time.

    Before ``start`` seconds, nothing but first calls differs.
    """
    seconds = np.array(auto.seconds)
    best = np.min([engine.until(auto.steps) for engine in engines], axis=0)
    ratios = np.where(seconds < start, 0.0, seconds / best)
    worst = int(np.argmax(ratios))
    return float(ratios[worst]), auto.seconds[worst]


def settled_after(auto: Curve, step: float, within: float = 1.2) -> float:
    """Return from when on every stretch of a tenth of the time so far has steps nearly as fast.

    Infinity where the last one has not.
    """
    start, since, is_settled = 0, 0.0, True
    for i in range(1, len(auto.seconds)):
        seconds = auto.seconds[i] - auto.seconds[start]
        if seconds >= max(0.25, 0.1 * auto.seconds[start]):
            is_settled = seconds <= within * step * (auto.steps[i] - auto.steps[start])
            if not is_settled:
                since = auto.seconds[i]
            start = i
    return since if is_settled else math.inf


def measure(
    step: Callable[[], Any], limit: float, clock: Callable[[], float]
) -> tuple[list[float], list[int]]:
    """Step for so many seconds; return moments, ever rarer, and the steps done by each."""
    seconds: list[float] = []
    steps: list[int] = []
    done, now, due = 0, 0.0, 0.0
    start = clock()
    while now < limit or done < REAL_CALLS:
        step()
        done += 1
        now = clock() - start
        if now >= min(due, limit) or done == REAL_CALLS:
            seconds.append(round(now, 5))
            steps.append(done)
            due = now + max(LEAST, GROWTH * now)
    return seconds, steps


class Refused(Exception):
    """XLA is not given this program."""


def main() -> None:
    p = argparse.ArgumentParser(prog="python -m benchmarks.curves", description=__doc__)
    p.add_argument("workload", choices=WORKLOADS)
    p.add_argument("engine", choices=(*ENGINES, AUTO))
    p.add_argument("seconds", type=float)
    p.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    options = p.parse_args()

    import tapegraph as tg
    from benchmarks.contenders import COMPILED, load
    from tapegraph.engines import choice, registry
    from tapegraph.lowering.steps.xla import refusal

    warnings.simplefilter("ignore")
    clock = time.process_time if options.clock == "cpu" else time.perf_counter
    choice.CLOCK.now = clock  # `auto` is to save what is measured here
    engine, programs = registry.engine("tensorflow"), []
    whole = engine.whole

    def seen(recording: Any, state: Any, option: Any) -> Any:
        if options.engine == WITH_XLA:
            option = not refusal(recording, "auto")  # at once
        programs.append(whole(recording, state, option))
        return programs[-1]

    vars(engine)["whole"] = seen
    tg.set_backend(options.engine.split()[0])
    module = load(options.workload)
    step = module.CONTENDERS[COMPILED](module.problem()).step

    def checked() -> None:
        step()
        if options.engine == WITH_XLA and programs and "not with XLA" in programs[-1].note:
            raise Refused

    curve = Curve([], [], "")
    with suppress(Refused):
        curve = Curve(*measure(checked, options.seconds, clock), "")
    ran = tg.last_backward().backend
    if options.engine != AUTO and curve.steps and ran != options.engine.split()[0]:
        raise SystemExit(f"{options.workload} ran natively: {tg.last_backward().reason}")
    if ran == "tensorflow":
        ran += programs[-1].note
    print(json.dumps(curve._replace(ran=ran)._asdict()))


if __name__ == "__main__":
    main()
