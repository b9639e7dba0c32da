"""Choosing the engine, and the report of what it did."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import typing
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.__main__ import info
from tapegraph.engines import auto, backend, choice, registry
from tapegraph.engines.choice import TRIALS
from tapegraph.engines.engine import Engine, EngineDeclined
from tapegraph.typed import Backend

CHOICES = ("auto", "tensorflow", "native")


@pytest.mark.parametrize("name", CHOICES)
def test_set_backend_is_what_get_backend_says(name):
    tg.set_backend(name)
    assert tg.get_backend() == name


@pytest.mark.parametrize("name", CHOICES)
def test_use_backend_holds_inside_its_block(name):
    before = tg.get_backend()
    with tg.use_backend(name):
        assert tg.get_backend() == name
    assert tg.get_backend() == before


def test_use_backend_nests_and_survives_errors():
    tg.set_backend("auto")
    with pytest.raises(KeyError), tg.use_backend("native"):
        with tg.use_backend("tensorflow"):
            assert tg.get_backend() == "tensorflow"
        assert tg.get_backend() == "native"
        raise KeyError
    assert tg.get_backend() == "auto"


def test_the_innermost_choice_wins_over_set_backend():
    with tg.use_backend("native"):
        tg.set_backend("tensorflow")
        assert tg.get_backend() == "native"
    assert tg.get_backend() == "tensorflow"


@pytest.mark.parametrize("choose", [tg.set_backend, lambda name: tg.use_backend(name).__enter__()])
@pytest.mark.parametrize("name", ["torch", "", "Native", None, 1])
def test_an_unknown_backend_lists_the_choices(choose, name):
    tg.set_backend("native")
    with pytest.raises(ValueError, match="'auto', 'tensorflow', 'native'") as caught:
        choose(name)
    assert repr(name) in str(caught.value)
    assert tg.get_backend() == "native"


# -- the environment ---------------------------------------------------------------------------


def imported(variable):
    """Import tapegraph in a fresh interpreter under ``TAPEGRAPH_BACKEND=variable``."""
    environment = {k: v for k, v in os.environ.items() if k != "TAPEGRAPH_BACKEND"}
    if variable is not None:
        environment["TAPEGRAPH_BACKEND"] = variable
    return subprocess.run(
        [sys.executable, "-c", "import tapegraph; print(tapegraph.get_backend())"],
        capture_output=True,
        text=True,
        env=environment,
        cwd=Path(__file__).parents[2],
        timeout=60,
    )


@pytest.mark.parametrize(
    ("variable", "backend"), [(None, "auto"), ("", "auto"), ("native", "native")]
)
def test_the_environment_chooses_at_import(variable, backend):
    assert imported(variable).stdout.strip() == backend


def test_an_unknown_environment_value_fails_the_import():
    result = imported("cuda")
    assert result.returncode != 0
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("ValueError: TAPEGRAPH_BACKEND: received 'cuda'")
    assert all(repr(choice) in last for choice in CHOICES)


# -- the report --------------------------------------------------------------------------------


def test_no_report_before_the_first_backward():
    assert tg.last_backward() is None


def test_the_report_of_a_native_backward():
    x = tg.param([1.0, 2.0])
    with tg.use_backend("native"):
        tg.sum(x * 2.0).backward()
    report = tg.last_backward()
    assert (report.backend, report.entries, report.cached) == ("native", 4, False)
    assert "native" in report.reason
    assert report.compile_seconds == 0.0
    assert 0.0 < report.run_seconds < 10.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.backend = "tensorflow"


def test_each_backward_has_a_report_of_its_own():
    x = tg.param(1.0)
    tg.set_backend("native")
    (x * 2.0).backward()
    first = tg.last_backward()
    (x * 2.0 * 3.0).backward()
    assert (first.entries, tg.last_backward().entries) == (3, 5)


def test_entries_count_what_was_differentiated_not_the_tape():
    x = tg.param(1.0)
    kept = [tg.sin(x) for _ in range(10)]
    tg.set_backend("native")
    kept[0].backward()
    assert tg.last_backward().entries == 2
    assert len(tg.tape()) == 11


def test_a_failed_backward_leaves_the_report():
    x = tg.param([1.0, 2.0])
    tg.set_backend("native")
    x.sum().backward()
    report = tg.last_backward()
    with pytest.raises(ValueError, match="seed"):
        x.sum().backward([1.0, 2.0])
    assert tg.last_backward() is report


def test_both_ways_to_call_backward_are_one():
    x = tg.param([1.0, 2.0])
    tg.backward(x * x, seed=[1.0, 2.0])
    np.testing.assert_array_equal(x.grad, [2.0, 8.0])
    x.grad = None
    (x * x).backward(seed=[1.0, 2.0])
    np.testing.assert_array_equal(x.grad, [2.0, 8.0])


# -- another engine ----------------------------------------------------------------------------


class Counting(Engine):
    """Runs the native sweep, and counts."""

    name, title = "counting", "the counting engine"

    def __init__(self):
        self.asked = self.ran = 0

    def run(self, recording, seeds):
        self.asked += 1
        return self.gradients(recording, seeds), self.asked > 1, 0.0

    def gradients(self, recording, seeds):
        self.ran += 1
        return tg.fallback.gradients(recording, seeds)

    def version(self):
        return "1.5"

    def details(self):
        return {"counts": str(self.ran)}


class Choosy(Counting):
    """Declines programs of more than five entries, and fails on those of five."""

    name, title = "choosy", "the choosy engine"
    error = ArithmeticError("out of luck")

    def check(self, program):
        if len(program) > 5:
            raise EngineDeclined(f"{len(program)} entries are too many")

    def run(self, recording, seeds):
        self.check(recording.program)
        return super().run(recording, seeds)

    def gradients(self, recording, seeds):
        if len(recording) == 5:
            self.ran += 1
            raise self.error
        return super().gradients(recording, seeds)

    def version(self):
        raise EngineDeclined("it is not in the mood")


def added(monkeypatch, *toys):
    """Register engines for one test, and forget what `auto` knows."""
    monkeypatch.setattr(registry, "_loaders", dict(registry._loaders))
    monkeypatch.setattr(registry, "_loaded", dict(registry._loaded))
    monkeypatch.setattr(auto, "BACKWARDS", auto.Backwards())
    for toy in toys:
        registry.register(toy.name, lambda toy=toy: toy)


@pytest.fixture
def counting(monkeypatch):
    engine = Counting()
    added(monkeypatch, engine)
    return engine


@pytest.fixture
def choosy(monkeypatch):
    engine = Choosy()
    added(monkeypatch, engine)
    return engine


def chain(x, length):
    """A program of ``length`` entries, the leaf and the sum among them."""
    for _ in range(length - 2):
        x = tg.sin(x)
    return tg.sum(x)


def test_the_names_that_a_type_checker_knows_are_those_registered():
    assert typing.get_args(Backend) == registry.choices()


def test_another_engine_is_one_more_choice(counting, monkeypatch):
    with pytest.raises(ValueError, match="'auto', 'tensorflow', 'native', 'counting'"):
        tg.set_backend("torch")
    tg.set_backend("counting")
    assert tg.get_backend() == "counting"
    with tg.use_backend("native"), tg.use_backend("counting"):
        assert tg.get_backend() == "counting"
    monkeypatch.setenv("TAPEGRAPH_BACKEND", "counting")
    assert backend._from_environment() == "counting"


@pytest.mark.parametrize("name", ["auto", "native", "counting"])
def test_a_name_is_taken_once(counting, name):
    with pytest.raises(ValueError, match=f"the engine name '{name}' is taken"):
        registry.register(name, lambda: counting)


def test_another_engine_runs_where_it_is_chosen_and_reports(counting):
    x = tg.param([0.5, 1.0])
    tg.set_backend("counting")
    for cached in (False, True):
        chain(x, 3).backward()
        report = tg.last_backward()
        assert (report.backend, report.reason, report.error) == ("counting", None, None)
        assert (report.entries, report.cached) == (3, cached)
        assert report.run_seconds > 0.0
    assert (counting.asked, counting.ran) == (2, 2)
    np.testing.assert_allclose(x.grad, 2 * np.cos([0.5, 1.0]))


def test_another_engine_without_loops_runs_a_scan_call_by_call(counting, monkeypatch):
    native = registry.engine("native")
    made = native.whole

    def whole(*given):
        plan = made(*given)
        same = {
            name: getattr(plan, name)
            for name in ("run", "leaves", "keeps_state", "variants", "note")
        }
        program = SimpleNamespace(**same, compile_seconds=0.0)
        monkeypatch.setattr(Counting, "whole", lambda self, *given: program)
        return plan

    monkeypatch.setattr(native, "whole", whole)
    monkeypatch.setattr(Counting, "check_whole", lambda self, program: None)
    w = tg.param(np.ones(2))
    optimizer = tg.SGD([w], lr=0.1)

    @tg.compile
    def step(x):
        loss = tg.sum(w * x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    with tg.use_backend("counting"):
        losses = step.scan(np.ones((20, 2)))
    np.testing.assert_allclose(losses.data, 2.0 - 0.2 * np.arange(20.0), atol=1e-14)
    np.testing.assert_allclose(w.data, [-1.0, -1.0])
    assert "ran in counting" in step.explain()


def test_another_engine_is_loaded_when_it_is_asked_for(monkeypatch):
    added(monkeypatch)
    loads = []
    registry.register("counting", lambda: loads.append(1) or Counting())
    with tg.use_backend("native"):
        chain(tg.param([1.0]), 3).backward()
    assert loads == []
    with tg.use_backend("counting"):
        chain(tg.param([1.0]), 3).backward()
        chain(tg.param([1.0]), 3).backward()
    assert loads == [1]


def test_an_engine_that_does_not_load_falls_back(monkeypatch):
    added(monkeypatch)

    def missing():
        raise ImportError("no such library")

    registry.register("counting", missing)
    x = tg.param([0.5])
    with tg.use_backend("counting"), pytest.warns(RuntimeWarning, match="no such library"):
        chain(x, 3).backward()
    assert tg.last_backward().reason == "the engine counting failed: ImportError: no such library"
    np.testing.assert_allclose(x.grad, np.cos([0.5]))


def test_what_an_engine_declines_runs_natively_and_is_said_once(choosy, monkeypatch):
    x = tg.param([0.5])
    tg.set_backend("choosy")
    with pytest.warns(RuntimeWarning, match="6 entries are too many"):
        chain(x, 6).backward()
    chain(x, 6).backward()  # a warning would be an error
    report = tg.last_backward()
    assert (report.backend, report.reason) == ("native", "6 entries are too many")
    assert report.error is None
    monkeypatch.setenv("TAPEGRAPH_STRICT", "1")
    with pytest.raises(RuntimeError, match="6 entries are too many") as caught:
        chain(x, 6).backward()
    assert isinstance(caught.value.__cause__, EngineDeclined)


def test_a_bug_keeps_its_traceback_in_the_report(choosy):
    x = tg.param([0.5])
    tg.set_backend("choosy")
    with pytest.warns(RuntimeWarning, match="the choosy engine failed: ArithmeticError: out of"):
        chain(x, 5).backward()
    report = tg.last_backward()
    assert report.reason == "the choosy engine failed: ArithmeticError: out of luck"
    assert report.error.startswith("Traceback (most recent call last):")
    assert "in gradients" in report.error
    assert report.error.endswith("ArithmeticError: out of luck\n")
    chain(x, 3).backward()
    assert (tg.last_backward().backend, tg.last_backward().error) == ("choosy", None)


@pytest.fixture
def alone(monkeypatch):
    """Whether TensorFlow is installed must not matter."""

    tensorflow = registry.engine("tensorflow")
    monkeypatch.setattr(tensorflow, "unavailable", lambda: None)
    monkeypatch.setattr(tensorflow, "refusal", lambda history: "not now")
    monkeypatch.setattr(choice, "EARLIEST", 0.0)
    tg.set_backend("auto")


def backends(x, length, times):
    """Differentiate one structure again and again; return what ran."""
    ran = []
    for _ in range(times):
        chain(x, length).backward()
        ran.append(tg.last_backward().backend)
    return ran


@pytest.mark.parametrize(("seconds", "winner"), [(0.5, "counting"), (2.0, "native")])
def test_auto_measures_another_engine(counting, alone, seconds, winner, monkeypatch):
    tells = {"native": 1.0, "counting": seconds}
    monkeypatch.setattr(
        choice.Choice,
        "took",
        lambda c, way, *_, took=choice.Choice.took: took(c, way, tells[way.engine]),
    )
    ran = backends(tg.param([0.5]), 4, 2 * TRIALS + 6)
    # The first run of each is no measurement.
    expected = ["native"] * (TRIALS + 1) + ["counting"] * (TRIALS + 1) + [winner] * 4
    assert ran == expected
    reason = "auto: the native engine took 1e+03 ms, against 2e+03 ms in the counting engine"
    assert tg.last_backward().reason == (reason if winner == "native" else None)


def test_auto_passes_over_an_engine_that_declines_without_a_word(choosy, alone):
    assert backends(tg.param([0.5]), 6, 8) == ["native"] * 8
    assert choosy.ran == 0
    assert tg.last_backward().reason == "not now"  # the first engine asked


def test_auto_does_not_try_again_what_has_a_bug(choosy, alone):
    x = tg.param([0.5])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert backends(x, 5, 10) == ["native"] * 10
    assert (choosy.ran, len(caught)) == (1, 1)
    assert "out of luck" in tg.last_backward().reason
    assert "in gradients" in tg.last_backward().error
    assert "choosy" in backends(x, 4, 10)  # another structure is another matter


def test_auto_tries_again_a_few_times_what_may_pass(choosy, alone):
    choosy.error = MemoryError("busy")
    x = tg.param([0.5])
    with pytest.warns(RuntimeWarning, match="busy"):
        assert backends(x, 5, 10) == ["native"] * 10
    assert choosy.ran == TRIALS


def test_a_failure_that_passes_leaves_no_trace(choosy, alone, monkeypatch):
    choosy.error = MemoryError("busy")
    x = tg.param([0.5])
    with pytest.warns(RuntimeWarning, match="busy"):
        backends(x, 5, TRIALS + 2)  # the last of them fails
    monkeypatch.setattr(Choosy, "gradients", Counting.gradients)
    assert backends(x, 5, TRIALS) == ["choosy"] * TRIALS


def test_info_names_every_engine(counting):
    added_to = dict(line.split(maxsplit=1) for line in info())
    assert added_to["counting"] == "1.5"
    assert added_to["counts"] == "0"
    tg.set_backend("counting")
    assert "engine in force: counting" in "\n".join(info())


def test_info_says_why_an_engine_is_not_used(choosy):
    tg.set_backend("choosy")
    lines = "\n".join(info())
    assert "choosy      not used: it is not in the mood" in lines
    assert "engine in force: native" in lines
