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


def program(size: int = 3):
    x = tg.param(np.ones(size))
    return linearise([tg.sum(tg.tanh(x) * x)])


def test_the_first_time_is_native():
    assert "the first time" in auto.why_native(program(), imported=True)


def test_the_graph_is_compiled_when_the_saving_pays_for_it():
    p = program()
    price = len(p) * auto.COMPILE
    worth = auto.CALL + price / (auto.SAVING * auto.HORIZON)
    auto.ran_natively(p, worth * 1.01)
    assert auto.why_native(p, imported=True) is None


def test_a_structure_too_quick_to_pay_stays_native_until_it_has_come_back_often():
    p = program()
    seconds = auto.CALL * 1.1
    auto.ran_natively(p, seconds)
    assert "does not pay back yet" in auto.why_native(p, imported=True)
    enough = len(p) * auto.COMPILE / (auto.SAVING * (seconds - auto.CALL))
    for _ in range(int(enough) + 1):
        auto.ran_natively(p, seconds)
    assert auto.why_native(p, imported=True) is None


def test_importing_tensorflow_must_pay_too():
    p = program()
    auto.ran_natively(p, auto.IMPORT / 2)
    assert "importing TensorFlow" in auto.why_native(p, imported=False)
    auto.ran_natively(p, auto.IMPORT / 2)
    assert auto.why_native(p, imported=False) is None


@pytest.mark.parametrize(("graph", "native_wins"), [(0.5, True), (0.02, False)])
def test_the_faster_engine_stays(graph, native_wins):
    p = program()
    auto.ran_natively(p, 0.1)
    auto.ran_compiled(p, 9.9, compile_seconds=0.01)  # the run after compiling is not judged
    for _ in range(auto.TRIALS):
        assert auto.why_native(p, imported=True) is None
        auto.ran_compiled(p, graph, compile_seconds=0.0)
    reason = auto.why_native(p, imported=True)
    assert (reason is not None) == native_wins
    if native_wins:
        assert "100 ms against 500 ms" in reason


def test_another_size_is_decided_anew():
    auto.ran_natively(program(3), 10.0)
    assert auto.why_native(program(3), imported=True) is None
    assert "the first time" in auto.why_native(program(4), imported=True)


def test_structures_remembered_are_bounded(monkeypatch):
    monkeypatch.setattr(auto, "LIMIT", 3)
    for size in range(1, 8):
        auto.ran_natively(program(size), 1.0)
    assert len(auto._records) == 3


def test_the_report_says_which_engine_and_why():
    pytest.importorskip("tensorflow")
    tg.set_backend("auto")
    tg.lowering.tensorflow()
    x = tg.param(np.ones(3))
    tg.sum(x * x).backward()
    assert tg.last_backward().backend == "native"
    assert tg.last_backward().reason == "auto: a structure runs natively the first time"
    auto.ran_natively(linearise([tg.sum(x * x)]), 1.0)
    for record in auto._records.values():
        record.native = 1.0  # as if the first run had taken so long
    tg.sum(x * x).backward()
    assert tg.last_backward().backend == "tensorflow"
    assert tg.last_backward().reason is None
    np.testing.assert_array_equal(x.grad, np.full(3, 4.0))
