"""What `auto` makes of backwards: the native engine first, another once it pays, and the faster."""

from __future__ import annotations

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.engines import auto, choice, registry
from tapegraph.engines.choice import EARLIEST, TRIALS, Choice
from tapegraph.engines.engine import Costs, Engine
from tapegraph.recording.linearize import History

imagined = pytest.mark.usefixtures("graph")


@pytest.fixture(autouse=True)
def usual_pace(monkeypatch):
    monkeypatch.setattr(auto, "pace", lambda: 1.0)


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


def earned(seconds: float = 1e3) -> None:
    """Let backwards of other structures have taken so long."""
    choice.PROCESS.spent += seconds


def chosen(size: int = 3) -> Choice:
    """Return the choice for a structure."""
    found = auto.decide(structure(size)).choice
    assert found is not None
    return found


def native(found: Choice, seconds: float, runs: int = TRIALS + 1) -> None:
    for _ in range(runs):
        found.took(found.choose().way, seconds)


def compiled(found: Choice, seconds: float, compile_seconds: float = 0.01) -> None:
    for preparing in (compile_seconds, *[0.0] * TRIALS):
        way = found.choose().way
        assert way.engine == "tensorflow"
        found.took(way, seconds, preparing)


def why(found: Choice) -> str | None:
    failure = found.choose().failure
    return None if failure is None else failure.reason


@imagined
def test_the_first_times_are_native():
    earned()
    assert why(chosen()) == "auto: a new structure runs natively at first"


@imagined
def test_the_graph_is_compiled_when_the_sweeps_have_cost_as_much(graph):
    earned()
    found = chosen()
    price = graph.costs.compile + structure(3).length * graph.costs.compile_entry
    runs = int(price / 0.01)
    native(found, 0.01, runs)
    assert "does not pay yet" in why(found) or price < EARLIEST
    native(found, 0.01, int(max(price, EARLIEST) / 0.01) + 1 - runs)
    assert why(found) is None


def test_importing_tensorflow_must_pay_before_structures_are_told_apart(graph):
    graph.imported = False
    program = structure(3)
    sweeps = 0
    while auto.decide(program).choice is None:
        choice.PROCESS.spent += 1e-2
        sweeps += 1
    assert sweeps == pytest.approx((graph.costs.load + graph.costs.compile) / 1e-2, abs=1)
    assert program.recording.program._key is not None
    other = structure(4)
    auto.BACKWARDS = auto.Backwards()
    choice.PROCESS.paid = 1e3
    reason = auto.decide(other).failure.reason
    assert reason == "auto: trying TensorFlow takes about 3 s, which does not pay yet"
    assert other.recording.program._key is None


@imagined
@pytest.mark.parametrize(("graph_takes", "native_wins"), [(0.2, True), (0.02, False)])
def test_the_faster_engine_stays(graph_takes, native_wins):
    earned()
    found = chosen()
    native(found, 0.1)
    compiled(found, graph_takes, compile_seconds=9.9)  # the run after compiling is not judged
    took = "auto: the native engine took 100 ms, against 200 ms in TensorFlow"
    assert why(found) == (took if native_wins else None)


@imagined
def test_the_runs_of_another_engine_are_measured(graph):
    def run(recording, seeds):
        return tg.fallback.gradients(recording, seeds), False, 0.0

    graph.run, graph.costs = run, Costs()
    x = tg.param(np.ones(5))
    choice.PROCESS.spent += 1e3
    for _ in range(2 * TRIALS + 2):
        y = tg.sum(tg.tanh(x) * x)
        y.backward()
        found = auto.BACKWARDS.choice(History([y]), [graph])
        found.ledger.spent += 1.0
    ways = [found.stands, *found.others]
    assert sorted(way.engine for way in ways if len(way.times) == TRIALS) == [
        "native",
        "tensorflow",
    ]


@imagined
def test_another_size_is_decided_anew():
    earned()
    assert chosen(3) is chosen(3)
    assert chosen(3) is not chosen(4)


@imagined
def test_structures_remembered_are_bounded(monkeypatch):
    monkeypatch.setattr(auto, "STRUCTURES", 3)
    earned()
    kept = [chosen(size) for size in range(1, 8)]
    assert len(auto.BACKWARDS.choices) == 3
    assert chosen(7) is kept[-1]


def test_the_pace_of_this_machine_is_measured_once(monkeypatch):
    monkeypatch.undo()
    assert 0.02 < auto.pace() < 50.0
    assert auto.pace() == auto.pace()


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


def test_the_report_says_which_engine_and_why():
    pytest.importorskip("tensorflow")
    tg.set_backend("auto")
    tg.lowering.tensorflow()
    earned()
    x = tg.param(np.ones(3))
    tg.sum(x * x).backward()
    assert tg.last_backward().backend == "native"
    assert tg.last_backward().reason == "auto: a new structure runs natively at first"
    (found,) = auto.BACKWARDS.choices.values()
    found.ledger.spent, found.others[0].call = 1e3, 0.0  # as if the first runs had taken so long
    for _ in range(TRIALS):
        tg.sum(x * x).backward()
    assert tg.last_backward().backend == "native"
    tg.sum(x * x).backward()
    assert tg.last_backward().backend == "tensorflow"
    assert tg.last_backward().reason is None
    np.testing.assert_array_equal(x.grad, np.full(3, 2.0 * (TRIALS + 2)))
