"""A compiled step under `auto`: when another engine is tried, what that costs, and which stays."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.engines import auto, choice, registry
from tapegraph.engines.choice import CLOCK, TRIALS
from tapegraph.engines.engine import Costs, Engine
from tapegraph.fallback.plan import Plan

# ------------------------------------------------------------------ what trying costs


class Imagined(Engine):
    """An engine that runs the native plan, on a clock of its own."""

    name, title = "imagined", "the imagined engine"
    costs = Costs(load=3.0, compile=1.0, compile_entry=0.0)

    def __init__(self, clock):
        self.clock = clock
        self.imported = False
        self.load_takes, self.compile_takes, self.run_takes = 3.0, 1.0, 0.01

    def run(self, recording, seeds):
        raise AssertionError("no step is run so")

    def loaded(self):
        return self.imported

    def load(self):
        self.clock.seconds += self.load_takes
        self.imported = True

    def check_whole(self, program):
        pass

    def whole(self, recording, state, xla="auto"):
        self.clock.seconds += self.compile_takes
        return Borrowed(self, self.clock.plans[id(recording)])


class Borrowed:
    """The native plan, run in another engine's name and time."""

    keeps_state, compile_seconds, note, variants = False, 0.0, "", {}

    def __init__(self, engine, plan):
        self.engine, self.plan, self.leaves = engine, plan, plan.leaves

    def run(self, values, changes=None):
        clock, engine = self.engine.clock, self.engine
        clock.runs_in(engine.name)
        clock.seconds += engine.run_takes
        return clock.run(self.plan, values)


@pytest.fixture
def clock(monkeypatch):
    """A clock that plans advance: by the imagined engine's time, or natively by ``native``."""

    class Fake:
        seconds, native, move, run = 0.0, 0.1, 0.0, staticmethod(Plan.run)

        def __init__(self):
            self.ran: list[str] = []
            self.plans: dict[int, Plan] = {}

        def runs_in(self, name):
            """Move the state there, where another engine ran before."""
            if self.ran and self.ran[-1] != name:
                self.seconds += self.move
            self.ran.append(name)

    fake = Fake()
    init = Plan.__init__

    def made(plan, recording):
        init(plan, recording)
        fake.plans[id(recording)] = plan

    def timed(plan, values, changes=None):
        fake.runs_in("native")
        fake.seconds += fake.native
        return fake.run(plan, values)

    monkeypatch.setattr(Plan, "__init__", made)
    monkeypatch.setattr(Plan, "run", timed)
    monkeypatch.setattr(CLOCK, "now", lambda: fake.seconds)
    return fake


@pytest.fixture
def engine(monkeypatch, clock):
    """The one engine besides the native one."""
    found = Imagined(clock)
    native = registry._loaders[registry.NATIVE]
    monkeypatch.setattr(registry, "_loaders", {"imagined": lambda: found, "native": native})
    monkeypatch.setattr(registry, "_loaded", {})
    monkeypatch.setattr(auto, "pace", lambda: 1.0)
    with tg.use_backend("auto"):
        yield found


def descent():
    w = tg.param(np.array([1.0, 2.0]))
    optimizer = tg.SGD([w], lr=0.1)

    def step(x):
        loss = tg.sum((w * x) ** 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return tg.compile(step, verify_every=None), w


X = np.array([0.5, -1.0])
REAL = 2  # calls, before the first that runs the program


def test_a_step_imports_and_compiles_when_it_has_run_for_as_long(clock, engine):
    step, w = descent()
    calls = 200
    for _ in range(calls):
        step(X)
    tried = clock.ran.index("imagined")
    assert tried == pytest.approx((3.0 + 1.0) / 0.1, abs=1)
    assert clock.ran[-1] == "imagined"
    assert clock.seconds <= 2 * min(calls * 0.1, 4.0 + calls * 0.01) + TRIALS * 0.1
    np.testing.assert_allclose(w.data, (1.0 - 0.2 * X**2) ** calls * [1.0, 2.0], rtol=1e-12)


def test_the_call_that_tries_tells_what_that_took(clock, engine):
    step, _ = descent()
    reports = []
    for _ in range(50):
        step(X)
        reports.append(tg.last_backward())
    (waited,) = [r for r in reports[REAL:] if r.compile_seconds]
    assert waited.compile_seconds == pytest.approx(4.0)
    assert waited.backend == "imagined"
    assert "made in 4" in step.explain()


@pytest.mark.parametrize("slower", [0.1, 0.2])
def test_a_slower_engine_is_left_again(clock, engine, slower):
    engine.run_takes = slower
    step, _ = descent()
    for _ in range(100):
        step(X)
    assert clock.ran.count("imagined") == 1 + TRIALS  # the run that compiles is no measurement
    assert clock.ran[-1] == "native"
    assert "took 100 ms, against" in tg.last_backward().reason


@pytest.mark.parametrize("runs", [(0.1, 0.08), (0.08, 0.1)])
def test_a_run_that_moved_the_state_is_no_measurement(clock, engine, runs):
    """A move takes as long as fifty runs: it counts against changing, and not as an engine's time.

    What is slower is measured again less often, so that moving costs no more than its part.
    """
    clock.native, engine.run_takes = runs
    clock.move = 5.0
    step, _ = descent()
    for _ in range(3000):
        step(X)
    best = "native" if runs[0] < runs[1] else "imagined"
    assert clock.ran[-1] == best
    text = step.explain()
    assert f"The native engine takes {1e3 * runs[0]:.3g} ms, by " in text
    assert f"The imagined engine takes {1e3 * runs[1]:.3g} ms, by " in text
    assert "takes inf" not in text
    changes = sum(a != b for a, b in itertools.pairwise(clock.ran))
    runs_alone = sum(runs[name == "imagined"] for name in clock.ran)
    assert clock.seconds == pytest.approx(runs_alone + 4.0 + 5.0 * changes)
    assert changes <= 5  # to try it, to time both again, and to come back from one look
    paid = step_account(step).paid
    # And so nothing is tried before that is earned; each also made a usual run.
    assert paid >= 4.0 + (5.0 - max(runs)) * changes


def step_account(step):
    """Return what one step has spent and paid."""
    (entry,) = (entry for entry in step._entries if entry.programs is not None)
    return entry.programs._choices["auto", False].ledger


def test_an_import_that_took_longer_than_foreseen_is_earned_before_more_is_tried(clock, engine):
    engine.load_takes, engine.run_takes = 9.0, 0.2
    step, _ = descent()
    for _ in range(300):
        step(X)
    # The import took three times as long, and so may compiling: the run that imports is native.
    earned = (9.0 + 3 * 1.0) / 0.1
    assert clock.ran.index("imagined") == pytest.approx(earned, abs=2)
    assert clock.ran.count("imagined") == 1 + TRIALS
    other, _ = descent()
    clock.ran.clear()
    engine.run_takes = 0.05
    for _ in range(300):
        other(X)
    # What the first one owes for the import, its trial, and its coming back is earned first.
    owed = choice.PROCESS.paid - choice.PROCESS.spent
    assert owed < 0.0 and clock.ran.index("imagined") < 300


def test_all_steps_pay_for_an_import_together_and_each_for_its_own_compiling(clock, engine):
    one, other = descent()[0], descent()[0]
    for _ in range(25):
        one(X)
        other(X)
    assert "imagined" in clock.ran
    tried = clock.ran.index("imagined")
    assert tried == pytest.approx(40, abs=2)  # both together, where one would take 40 itself
    assert clock.ran.count("imagined") < 25


def test_what_another_step_has_imported_costs_nothing_more(clock, engine):
    engine.imported = True
    step, _ = descent()
    for _ in range(30):
        step(X)
    assert clock.ran.index("imagined") == pytest.approx(1.0 / 0.1, abs=1)


def test_compiling_is_foreseen_by_what_it_has_taken(clock, engine, monkeypatch):
    monkeypatch.setattr(auto, "pace", choice.overrun)  # of a machine of the usual pace
    engine.imported, engine.compile_takes = True, 4.0
    tried = []
    for _ in range(2):
        step, _ = descent()
        clock.ran.clear()
        for _ in range(60):
            step(X)
        tried.append(clock.ran.index("imagined"))
    assert tried == pytest.approx([1.0 / 0.1, 4.0 / 0.1], abs=1)


def test_what_was_measured_is_told_under_another_backend_too(clock, engine):
    step, _ = descent()
    with tg.use_backend("imagined"):
        for _ in range(10):
            step(X)
    for backend in ("native", "imagined", "auto"):
        with tg.use_backend(backend):
            step(X)
            assert "The imagined engine takes 10 ms, by 3 runs." in step.explain()


@pytest.mark.parametrize(("xla", "price"), [(False, 1.0), ("auto", 1.0), (True, 1.0 + 2.5)])
def test_a_step_that_xla_compiles_earns_that_too(clock, engine, xla, price):
    engine.imported = True
    engine.compile_seconds = lambda entries, xla: 1.0 + 2.5 * (xla is True)
    step, _ = descent()
    step = tg.compile(step, xla=xla, verify_every=None)
    for _ in range(50):
        step(X)
    assert clock.ran.index("imagined") == pytest.approx(price / 0.1, abs=1)
    again, _ = descent()
    again = tg.compile(again, xla=xla, verify_every=None)
    for _ in range(4):
        again(X)
    assert f"trying it costs about {price:.2g} s" in again.explain()


def test_tensorflow_foresees_that_xla_takes_longer():
    from tapegraph.lowering.steps import xla

    tensorflow = registry.engine("tensorflow")
    plain, with_xla = (tensorflow.compile_seconds(100, option) for option in ("auto", True))
    assert with_xla == pytest.approx(plain + xla.STEP + 100 * xla.STEP_ENTRY)


def test_a_guess_is_one_for_this_machine(clock, engine, monkeypatch):
    monkeypatch.setattr(auto, "pace", lambda: 0.5)
    engine.load_takes, engine.compile_takes = 1.5, 0.5
    step, _ = descent()
    for _ in range(50):
        step(X)
    assert clock.ran.index("imagined") == pytest.approx(0.5 * 4.0 / 0.1, abs=1)


def test_tensorflow_costs_more_where_it_brings_more_along(monkeypatch):
    from tapegraph.lowering import engine as module

    tensorflow = registry.engine("tensorflow")
    monkeypatch.setattr(module.runtime, "is_found", lambda name: name == "jax")
    monkeypatch.setattr(module, "_BROUGHT", {"jax": 2.0, "pandas": 4.0})
    monkeypatch.delitem(module.sys.modules, "jax", raising=False)
    assert tensorflow.load_seconds() == tensorflow.costs.load + 2.0
    monkeypatch.setitem(module.sys.modules, "jax", module)
    assert tensorflow.load_seconds() == tensorflow.costs.load  # it is there already


# ------------------------------------------------------------------ in real life


@pytest.mark.thorough
def test_a_real_step_ends_in_the_faster_engine_with_the_native_numbers(run_python):
    pytest.importorskip("tensorflow")
    code = """
        import time
        import numpy as np
        import tapegraph as tg

        def trained(backend, steps=None):
            w = tg.param(np.full((4, 4), 0.5))
            optimizer = tg.SGD([w], lr=2.0**-10)

            @tg.compile
            def step(x):
                for _ in range(100):
                    x = tg.tanh(x * w + 0.25)
                loss = tg.sum(x)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                return loss

            x = np.full((4, 4), 0.75)
            start, done, waited, tried = time.perf_counter(), 0, 0.0, np.inf
            with tg.use_backend(backend):
                # Until something was tried, and as long again.
                while done < steps if steps else time.perf_counter() < start + 2 * tried:
                    step(x)
                    done += 1
                    report = tg.last_backward()
                    if done > 2 and report.compile_seconds:
                        waited += report.compile_seconds
                        tried = time.perf_counter() - start
            return w, done, time.perf_counter() - start, waited, step

        w, steps, seconds, waited, step = trained("auto")
        native, _, natively, _, _ = trained("native", steps)
        print(step.explain())
        print(np.abs(w.data / native.data - 1.0).max())
        print(waited, seconds, natively)
    """
    done = run_python(code)
    *_, ran, difference, times = done.stdout.splitlines()
    assert float(difference) < 1e-9
    waited, seconds, natively = map(float, times.split())
    assert 0.5 < waited < 0.75 * seconds, ran
    assert seconds < 3 * natively, ran
