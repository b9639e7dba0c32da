"""The tuner: what runs anyway first, the others once they pay, then whichever measured faster.

First the machinery by itself, then what `auto` makes of it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.engines import auto, registry, tuner
from tapegraph.engines.engine import Engine
from tapegraph.engines.tuner import CLOCK, POLICY, Candidate, Stage, Tuner
from tapegraph.recording.linearize import History

# ------------------------------------------------------------------ the machinery


def tuned(*prices: float, trials: int = 3, horizon: int = 200, call: float = 0.0) -> Tuner:
    """Return a tuner of one way that runs anyway and one more per price."""
    others = [Candidate(i, lambda p=p: p, call) for i, p in enumerate(prices, 1)]
    return Tuner([Candidate(0), *others], trials=trials, horizon=horizon, share=POLICY.share)


def run(chooser: Tuner, seconds: dict[int, float], times: int) -> list[tuple[int, Stage]]:
    """Run what is chosen, each way taking so many seconds; return the choices."""
    choices = []
    for _ in range(times):
        candidate, stage = chooser.choose()
        choices.append((candidate.way, stage))
        chooser.took(candidate, seconds[candidate.way])
    return choices


def test_what_runs_anyway_is_measured_first_the_others_then_it_again():
    chooser = tuned(0.0, 0.0, trials=2)
    choices = run(chooser, {0: 1.0, 1: 3.0, 2: 0.5}, 10)
    assert choices == [
        *[(0, Stage.FIRST)] * 2,
        *[(1, Stage.TRIAL)] * 2,
        *[(2, Stage.TRIAL)] * 2,
        *[(0, Stage.AGAIN)] * 2,
        *[(2, Stage.FASTEST)] * 2,
    ]
    assert [(c.way, s) for c, s in chooser.verdict] == [(0, 1.0), (1, 3.0), (2, 0.5)]


@pytest.mark.parametrize(("horizon", "runs"), [(0, 1000), (200, 1000), (2000, 3)])
def test_a_way_is_tried_when_a_share_of_what_passes_pays_for_it(horizon, runs):
    chooser = tuned(10.0, horizon=horizon)  # a tenth of 100 s, of steps of 0.1 s
    choices = run(chooser, {0: 0.1, 1: 0.1}, runs + 1)
    stages = [stage for _, stage in choices]
    assert stages[: runs + 1] == [Stage.FIRST] * 3 + [Stage.DEAR] * (runs - 3) + [Stage.TRIAL]
    assert choices[-1][0] == 1


def test_a_way_may_be_tried_before_it_pays_and_all_be_measured_again():
    chooser = tuned(1e9, 1e9, trials=2, horizon=0)
    run(chooser, {0: 1.0, 1: 0.5, 2: 0.25}, 5)
    chooser.try_next()
    ways = [way for way, _ in run(chooser, {0: 1.0, 1: 0.5, 2: 0.25}, 6)]
    assert ways == [1, 1, 1, 1, 1, 1]  # the other one is still too dear
    chooser = tuned(0.0, trials=2)
    assert run(chooser, {0: 1.0, 1: 2.0}, 7)[-1] == (0, Stage.FASTEST)
    chooser.measure_again(chooser.measured[1])
    assert run(chooser, {0: 1.0, 1: 0.5}, 5) == [
        *[(1, Stage.TRIAL)] * 2,
        *[(0, Stage.AGAIN)] * 2,
        (1, Stage.FASTEST),
    ]


def test_each_further_way_must_be_paid_for_as_well():
    chooser = tuned(10.0, 10.0, horizon=0)
    ways = [way for way, _ in run(chooser, {0: 0.1, 1: 0.1, 2: 0.1}, 2010)]
    assert (ways.index(1), ways.index(2)) == (1000, 2000)


def test_only_what_a_way_can_save_counts():
    assert run(tuned(1e-6, call=0.1), {0: 0.1, 1: 0.0}, 500)[-1] == (0, Stage.DEAR)
    assert run(tuned(1e-6, call=0.09), {0: 0.1, 1: 0.0}, 4)[-1] == (1, Stage.TRIAL)


def test_a_run_that_prepares_does_not_count():
    chooser = tuned(0.0, trials=1)
    run(chooser, {0: 1.0}, 1)
    candidate, _ = chooser.choose()
    chooser.took(candidate, 99.0, counts=False)
    assert run(chooser, {0: 1.0, 1: 0.5}, 3) == [
        (1, Stage.TRIAL),
        (0, Stage.AGAIN),
        (1, Stage.FASTEST),
    ]


def test_one_lucky_run_decides_nothing():
    chooser = tuned(0.0, trials=5)
    run(chooser, {0: 1.0}, 5)
    for seconds in (0.1, 1.5, 1.5, 1.5, 1.5):
        candidate, _ = chooser.choose()
        chooser.took(candidate, seconds)
    assert run(chooser, {0: 1.0}, 6)[-1] == (0, Stage.FASTEST)


@pytest.mark.parametrize(("seconds", "wins"), [(0.96, 0), (0.94, 1)])
def test_what_was_tried_must_be_faster_by_a_margin(seconds, wins):
    assert run(tuned(0.0), {0: 1.0, 1: seconds}, 10)[-1] == (wins, Stage.FASTEST)


def test_what_does_not_run_is_never_chosen_again():
    chooser = tuned(0.0, 0.0, trials=1)
    seconds = {0: 1.0, 1: 0.1, 2: 0.5}
    run(chooser, seconds, 4)
    winner, stage = chooser.choose()
    assert (winner.way, stage) == (1, Stage.FASTEST)
    chooser.drop(winner)
    assert run(chooser, seconds, 3) == [(2, Stage.FASTEST)] * 3
    chooser.drop(chooser.choose()[0])
    assert run(chooser, seconds, 3) == [(0, Stage.FASTEST)] * 3


def test_the_choice_stays_whatever_comes_after():
    chooser = tuned(0.0)
    assert run(chooser, {0: 1.0, 1: 0.5}, 10)[-1] == (1, Stage.FASTEST)
    assert run(chooser, {1: 50.0}, 50) == [(1, Stage.FASTEST)] * 50


# ------------------------------------------------------------------ auto

imagined = pytest.mark.usefixtures("graph")


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    known = auto._Known()
    known.longest = np.inf  # so that structures are told apart at once
    monkeypatch.setattr(auto, "KNOWN", known)
    token = auto._previous.set(None)
    yield known
    auto._previous.reset(token)


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves when it is told to."""

    class Stopped:
        seconds = 0.0

    monkeypatch.setattr(CLOCK, "now", lambda: Stopped.seconds)
    return Stopped


class Imagined(Engine):
    """TensorFlow's name and costs, without it."""

    name, title = "tensorflow", "TensorFlow"
    imported = True

    def run(self, recording, seeds):
        raise AssertionError("nothing runs here")

    def loaded(self):
        return self.imported


@pytest.fixture
def graph(monkeypatch):
    """An engine of TensorFlow's costs, which runs nothing, in place of it."""
    engine = Imagined()
    engine.costs = registry.engine("tensorflow").costs
    monkeypatch.setitem(registry._loaded, "tensorflow", engine)
    return engine


def structure(size: int) -> History:
    x = tg.param(np.ones(size))
    return History([tg.sum(tg.tanh(x) * x)])


def recorded(size: int = 3) -> auto.EngineStats:
    return auto.decide(structure(size)).structure


def why_native(known: auto.EngineStats) -> str | None:
    failure = known.choose().failure
    return None if failure is None else failure.reason


def native(known: auto.EngineStats, seconds: float) -> None:
    known.ran("native", seconds)


def compiled(known: auto.EngineStats, seconds: float, compile_seconds: float = 0.0) -> None:
    known.ran("tensorflow", seconds, compile_seconds)


def tried_natively(seconds: float, runs: int = POLICY.trials) -> auto.EngineStats:
    known = recorded()
    for _ in range(runs):
        native(known, seconds)
    return known


def forget() -> None:
    auto.KNOWN.structures.clear()


def price(known: auto.EngineStats) -> float:
    costs = registry.engine("tensorflow").costs
    return costs.compile + known.entries * costs.compile_entry


def call() -> float:
    return registry.engine("tensorflow").costs.call


@imagined
@pytest.mark.parametrize("runs", range(POLICY.trials))
def test_the_first_times_are_native(runs):
    reason = why_native(tried_natively(1e3, runs))
    assert reason == "auto: a structure runs natively the first 3 times"


@imagined
def test_the_graph_is_compiled_when_that_costs_a_tenth_of_the_loop():
    enough = call() + 10 * price(recorded()) / POLICY.horizon
    assert "does not pay yet" in why_native(tried_natively(0.99 * enough))
    forget()
    assert why_native(tried_natively(1.01 * enough)) is None


@imagined
def test_the_usual_run_counts_not_the_first_that_loads_everything():
    known = tried_natively(1.0, runs=1)
    for _ in range(POLICY.trials):
        native(known, call())
    assert "does not pay yet" in why_native(known)


@imagined
def test_a_structure_too_quick_to_pay_stays_native_until_it_has_come_back_often():
    seconds = 2 * call()
    often = int(10 * price(recorded()) / call()) + 1
    assert "does not pay yet" in why_native(tried_natively(seconds, often // 2))
    forget()
    assert why_native(tried_natively(seconds, often)) is None


def test_importing_tensorflow_must_pay_before_structures_are_told_apart(graph):
    graph.imported = False
    program = structure(3)
    for _ in range(int(10 * graph.costs.load)):
        decision = auto.decide(program)
        assert "importing TensorFlow takes about 3 s" in decision.failure.reason
        auto.ran_natively(decision.structure, 1.0)
    assert program.recording.program._key is None
    assert "the first 3 times" in auto.decide(program).failure.reason


@pytest.mark.parametrize("seconds", [1e-4, 3e-3])
def test_compiling_must_be_able_to_pay_before_structures_are_told_apart(
    seconds, nothing_known, graph
):
    nothing_known.longest = 0.0
    program = structure(3)
    costs = graph.costs
    # As many as must have passed for the smallest graph; for long ones, a loop is foreseen.
    foreseen = seconds * POLICY.horizon > 10 * costs.compile
    early = 0 if foreseen else 10 * costs.compile / seconds
    auto.ran_natively(auto.decide(program).structure, seconds)
    for _ in range(1, int(early)):
        decision = auto.decide(program)
        assert "compiling takes about 0.05 s" in decision.failure.reason
        auto.ran_natively(decision.structure, seconds)
    auto.ran_natively(auto.decide(program).structure, seconds)
    assert "the first 3 times" in auto.decide(program).failure.reason


def other_ran() -> None:
    """Let another structure run in between, in the other engine: no step is whole then."""
    auto._previous.set(None)


@imagined
@pytest.mark.parametrize(
    ("graph_takes", "native_wins"), [(0.5, True), (0.099, True), (0.02, False)]
)
def test_the_faster_engine_stays(graph_takes, native_wins, clock):
    known = tried_natively(0.1)
    assert why_native(known) is None
    compiled(known, 9.9, compile_seconds=0.01)  # the run after compiling is not judged
    for _ in range(POLICY.trials):
        assert why_native(known) is None
        other_ran()
        compiled(known, graph_takes)
    for _ in range(POLICY.trials):
        assert "timed again" in why_native(known)
        other_ran()
        native(known, 0.1)
    reason = why_native(known)
    assert (reason is not None) == native_wins
    if graph_takes == 0.5:
        assert reason == "auto: the native engine took 100 ms, against 500 ms in TensorFlow"


@imagined
def test_cold_first_runs_do_not_decide_for_the_graph(clock):
    known = tried_natively(0.5)
    for compile_seconds in (0.01, *[0.0] * POLICY.trials):
        assert why_native(known) is None
        other_ran()
        compiled(known, 0.3, compile_seconds)
    while "timed again" in (why_native(known) or ""):
        other_ran()
        native(known, 0.2)
    assert "took 200 ms, against 300 ms" in why_native(known)


@imagined
@pytest.mark.parametrize(("forward", "native_wins"), [(0.3, True), (0.1, False)])
def test_what_an_engine_costs_the_forward_counts(forward, native_wins, clock):
    known = recorded()

    def step(ran, backward, forward, *more):
        known.choose()
        clock.seconds += forward + backward
        ran(known, backward, *more)

    for _ in range(POLICY.trials):
        step(native, 0.3, 0.1)
    for compile_seconds in (0.01, *[0.0] * POLICY.trials):
        step(compiled, 0.2, forward, compile_seconds)
    for _ in range(POLICY.trials):
        step(native, 0.3, 0.1)
    assert known.candidates["tensorflow"].step == pytest.approx(0.2 + forward)
    assert (why_native(known) is not None) == native_wins


@imagined
def test_what_compiling_takes_is_measured(nothing_known):
    known = tried_natively(10.0)
    before = nothing_known.price(registry.engine("tensorflow"), known.entries)
    compiled(known, 1.0, compile_seconds=9.0)
    after = nothing_known.price(registry.engine("tensorflow"), known.entries)
    assert after == pytest.approx((before + 10.0) / 2)


@imagined
def test_another_size_is_decided_anew():
    assert why_native(tried_natively(10.0)) is None
    assert "the first 3 times" in why_native(recorded(4))


@imagined
def test_structures_remembered_are_bounded(monkeypatch, nothing_known):
    monkeypatch.setattr(tuner, "POLICY", replace(POLICY, structures=3))
    for size in range(1, 8):
        native(recorded(size), 1.0)
    assert len(nothing_known.structures) == 3


# ------------------------------------------------------------------ in real life


def test_a_first_step_loads_nothing_that_lowers(run_python):
    pytest.importorskip("tensorflow")
    code = """
        import sys
        import tapegraph as tg
        x = tg.param([1.0, 2.0])
        for _ in range(3):
            tg.sum(x * x).backward()
        print(*(name for name in sys.modules if name.startswith("tapegraph.lowering.")))
        print("tensorflow" in sys.modules, tg.last_backward().backend)
    """
    first, second = run_python(code).stdout.splitlines()
    loaded = {name.removeprefix("tapegraph.lowering.") for name in first.split()}
    assert loaded == {"engine", "rows", "rows.rules", "runtime"}
    assert second == "False native"


def test_the_report_says_which_engine_and_why(nothing_known):
    pytest.importorskip("tensorflow")
    tg.set_backend("auto")
    tg.lowering.tensorflow()
    x = tg.param(np.ones(3))
    for _ in range(POLICY.trials):
        tg.sum(x * x).backward()
    assert tg.last_backward().backend == "native"
    assert tg.last_backward().reason == "auto: a structure runs natively the first 3 times"
    for known in nothing_known.structures.values():
        known.candidates["native"].run = 1.0  # as if the first runs had taken so long
    tg.sum(x * x).backward()
    assert tg.last_backward().backend == "tensorflow"
    assert tg.last_backward().reason is None
    np.testing.assert_array_equal(x.grad, np.full(3, 8.0))
