"""`auto`: native first, the graph once it pays, then whichever measured faster."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.differentiation import tuner
from tapegraph.recording.program import Program
from tapegraph.recording.trace import linearise


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    tuner.forget()
    monkeypatch.setattr(tuner, "_native_seconds", 0.0)
    monkeypatch.setattr(tuner, "_longest", np.inf)  # so that structures are told apart at once
    monkeypatch.setattr(tuner, "_compile_entry", tuner.COMPILE_ENTRY)
    token = tuner._previous.set(None)
    yield
    tuner._previous.reset(token)
    tuner.forget()


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves when it is told to."""
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(tuner.time, "perf_counter", lambda: now.seconds)
    return now


def structure(size: int) -> Program:
    x = tg.param(np.ones(size))
    return linearise([tg.sum(tg.tanh(x) * x)]).program


def recorded(size: int = 3) -> tuner.Record:
    return tuner.record(structure(size), imported=True)


def tried_natively(seconds: float, runs: int = tuner.TRIALS) -> tuner.Record:
    known = recorded()
    for _ in range(runs):
        known.ran_natively(seconds)
    return known


def price(known: tuner.Record) -> float:
    return tuner.COMPILE + known.entries * tuner.COMPILE_ENTRY


@pytest.mark.parametrize("runs", range(tuner.TRIALS))
def test_the_first_times_are_native(runs):
    reason = tried_natively(1e3, runs).why_native()
    assert reason == "auto: a structure runs natively the first 3 times"


def test_the_graph_is_compiled_when_that_costs_a_tenth_of_the_loop():
    enough = tuner.CALL + 10 * price(recorded()) / tuner.HORIZON
    assert "does not pay yet" in tried_natively(0.99 * enough).why_native()
    tuner.forget()
    assert tried_natively(1.01 * enough).why_native() is None


def test_the_best_run_counts_not_the_first_that_loads_everything():
    known = tried_natively(1.0, runs=1)
    for _ in range(tuner.TRIALS):
        known.ran_natively(tuner.CALL)
    assert "does not pay yet" in known.why_native()


def test_a_structure_too_quick_to_pay_stays_native_until_it_has_come_back_often():
    seconds = 2 * tuner.CALL
    often = int(10 * price(recorded()) / tuner.CALL) + 1
    assert "does not pay yet" in tried_natively(seconds, often // 2).why_native()
    assert tried_natively(seconds, often).why_native() is None


def test_importing_tensorflow_must_pay_before_structures_are_told_apart():
    program = structure(3)
    known = tuner.record(program, imported=False)
    for _ in range(int(10 * tuner.IMPORT)):
        assert "importing TensorFlow" in tuner.record(program, imported=False).why_native()
        known.ran_natively(1.0)
    assert program._key is None
    assert "the first 3 times" in tuner.record(program, imported=False).why_native()


@pytest.mark.parametrize("seconds", [1e-4, 3e-3])
def test_compiling_must_be_able_to_pay_before_structures_are_told_apart(seconds, monkeypatch):
    monkeypatch.setattr(tuner, "_longest", 0.0)
    program = structure(3)
    # As many as must have passed for the smallest graph; for long ones, a loop is foreseen.
    early = 0 if seconds * tuner.HORIZON > 10 * tuner.COMPILE else 10 * tuner.COMPILE / seconds
    tuner.record(program, imported=True).ran_natively(seconds)
    for _ in range(1, int(early)):
        assert "compiling takes about 0.05 s" in tuner.record(program, imported=True).why_native()
        tuner.record(program, imported=True).ran_natively(seconds)
    tuner.record(program, imported=True).ran_natively(seconds)
    assert "the first 3 times" in tuner.record(program, imported=True).why_native()


@pytest.mark.parametrize(("graph", "native_wins"), [(0.5, True), (0.099, True), (0.02, False)])
def test_the_faster_engine_stays(graph, native_wins, clock):
    known = tried_natively(0.1)
    known.ran_compiled(9.9, compile_seconds=0.01)  # the run after compiling is not judged
    for _ in range(tuner.TRIALS):
        assert known.why_native() is None
        known.ran_compiled(graph, compile_seconds=0.0)
    for _ in range(tuner.TRIALS):
        assert "timed again" in known.why_native()
        known.ran_natively(0.1)
    known.graph.step = known.native.step = float("inf")
    reason = known.why_native()
    assert (reason is not None) == native_wins
    if graph == 0.5:
        assert reason == "auto: the native engine took 100 ms, against 500 ms in TensorFlow"


def test_cold_first_runs_do_not_decide_for_the_graph(clock):
    known = tried_natively(0.5)
    for compile_seconds in (0.01, *[0.0] * tuner.TRIALS):
        known.ran_compiled(0.3, compile_seconds)
    while "timed again" in (known.why_native() or ""):
        known.ran_natively(0.2)
    known.graph.step = known.native.step = float("inf")
    assert "took 200 ms, against 300 ms" in known.why_native()


@pytest.mark.parametrize(("forward", "native_wins"), [(0.3, True), (0.1, False)])
def test_what_an_engine_costs_the_forward_counts(forward, native_wins, clock):
    known = recorded()

    def step(ran, backward, forward):
        clock.seconds += forward + backward
        ran(backward)

    for _ in range(tuner.TRIALS):
        step(known.ran_natively, 0.3, 0.1)
    for compile_seconds in (0.01, *[0.0] * tuner.TRIALS):
        step(lambda s, c=compile_seconds: known.ran_compiled(s, c), 0.2, forward)
    for _ in range(tuner.TRIALS):
        step(known.ran_natively, 0.3, 0.1)
    assert known.graph.step == pytest.approx(0.2 + forward)
    assert (known.why_native() is not None) == native_wins


def test_another_size_is_decided_anew():
    assert tried_natively(10.0).why_native() is None
    assert "the first 3 times" in recorded(4).why_native()


def test_structures_remembered_are_bounded(monkeypatch):
    monkeypatch.setattr(tuner, "LIMIT", 3)
    for size in range(1, 8):
        recorded(size).ran_natively(1.0)
    assert len(tuner._records) == 3


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
    lines = run_python(code).stdout.splitlines()
    assert lines == ["tapegraph.lowering.gaps tapegraph.lowering.runtime", "False native"]


def test_the_report_says_which_engine_and_why():
    pytest.importorskip("tensorflow")
    tg.set_backend("auto")
    tg.lowering.tensorflow()
    x = tg.param(np.ones(3))
    for _ in range(tuner.TRIALS):
        tg.sum(x * x).backward()
    assert tg.last_backward().backend == "native"
    assert tg.last_backward().reason == "auto: a structure runs natively the first 3 times"
    for record in tuner._records.values():
        record.native.run = 1.0  # as if the first runs had taken so long
    tg.sum(x * x).backward()
    assert tg.last_backward().backend == "tensorflow"
    assert tg.last_backward().reason is None
    np.testing.assert_array_equal(x.grad, np.full(3, 8.0))
