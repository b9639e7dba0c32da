"""`auto`: native first, the graph once it pays, then whichever measured faster."""

from __future__ import annotations

import numpy as np
import pytest

import tapegraph as tg
from tapegraph import auto
from tapegraph.linearise import linearise


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    auto.forget()
    monkeypatch.setattr(auto, "_native_seconds", 0.0)
    monkeypatch.setattr(auto, "_compile_entry", auto.COMPILE)
    yield
    auto.forget()


def recorded(size: int = 3) -> auto.Record:
    x = tg.param(np.ones(size))
    return auto.record(linearise([tg.sum(tg.tanh(x) * x)]))


def test_the_first_time_is_native():
    assert "the first time" in recorded().why_native(imported=True)


def test_the_graph_is_compiled_when_the_saving_pays_for_it():
    known = recorded()
    price = known.entries * auto.COMPILE
    worth = auto.CALL + price / (auto.SAVING * auto.HORIZON)
    known.ran_natively(worth * 1.01)
    assert known.why_native(imported=True) is None


def test_a_structure_too_quick_to_pay_stays_native_until_it_has_come_back_often():
    known = recorded()
    seconds = auto.CALL * 1.1
    known.ran_natively(seconds)
    assert "does not pay yet" in known.why_native(imported=True)
    enough = known.entries * auto.COMPILE / (auto.SAVING * (seconds - auto.CALL))
    for _ in range(int(enough) + 1):
        known.ran_natively(seconds)
    assert known.why_native(imported=True) is None


def test_importing_tensorflow_must_pay_too():
    known = recorded()
    enough = auto.IMPORT / auto.SAVING
    known.ran_natively(enough / 2)
    assert "importing TensorFlow" in known.why_native(imported=False)
    known.ran_natively(enough / 2)
    assert known.why_native(imported=False) is None


@pytest.mark.parametrize(("graph", "native_wins"), [(0.5, True), (0.02, False)])
def test_the_faster_engine_stays(graph, native_wins):
    known = recorded()
    known.ran_natively(0.1)
    known.ran_compiled(9.9, compile_seconds=0.01)  # the run after compiling is not judged
    for _ in range(auto.TRIALS):
        assert known.why_native(imported=True) is None
        known.ran_compiled(graph, compile_seconds=0.0)
    reason = known.why_native(imported=True)
    assert (reason is not None) == native_wins
    if native_wins:
        assert "100 ms against 500 ms" in reason


def test_another_size_is_decided_anew():
    recorded(3).ran_natively(10.0)
    assert recorded(3).why_native(imported=True) is None
    assert "the first time" in recorded(4).why_native(imported=True)


def test_structures_remembered_are_bounded(monkeypatch):
    monkeypatch.setattr(auto, "LIMIT", 3)
    for size in range(1, 8):
        recorded(size).ran_natively(1.0)
    assert len(auto._records) == 3


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
    tg.sum(x * x).backward()
    assert tg.last_backward().backend == "native"
    assert tg.last_backward().reason == "auto: a structure runs natively the first time"
    for record in auto._records.values():
        record.native = 1.0  # as if the first run had taken so long
    tg.sum(x * x).backward()
    assert tg.last_backward().backend == "tensorflow"
    assert tg.last_backward().reason is None
    np.testing.assert_array_equal(x.grad, np.full(3, 4.0))
