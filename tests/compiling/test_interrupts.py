"""A signal may fall anywhere in a step: its state is that before it or that after it, all of it.

`matrix` sends a real signal at each place in turn where the interpreter handles one, at the start
of each function and as each call of C code returns, in the library, in NumPy and in TensorFlow;
`storm` sends them at random times. An eager twin says what state there should be.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import random
import signal
import sys
import time

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.compiling import programs
from tapegraph.recording.scopes import recorder
from tests.compiling.beside import agree, engine_of, standing

X = np.array([0.5, -1.5, 2.0])
ERRORS = np.geterr()


class Stop(Exception):
    """What the raising handlers raise: an error like any other, which nobody may take for his."""


class Model:
    """A step of everything that a step may change, and a count of how often it was taken.

    With a table TensorFlow runs it in no loop.
    """

    def __init__(self, *, has_table=True):
        self.has_table = has_table
        self.w = tg.param([1.0, 2.0, 3.0], name="w")
        self.v = tg.param([0.5, 0.25, 0.125])
        self.table = tg.param(np.arange(12.0).reshape(4, 3))
        self.count = tg.tensor(0.0)
        self.optimizer = tg.Adam([self.w, self.v], lr=0.01)
        self.rows = tg.SGD([self.table], lr=0.1)
        self.state = [self.w, self.v, self.table, self.count, self.optimizer, self.rows]

    def step(self, x):
        noise = tg.random.uniform(size=3)
        tg.zero_grad([self.v, self.table])
        self.w.grad = None
        loss = tg.sum((self.w * x + noise) ** 2 * self.v)
        if self.has_table:
            loss = loss + tg.sum(tg.gather(self.table, np.array([0, 2, 0])) * noise)
        loss.backward()
        self.optimizer.step()
        if self.has_table:
            self.rows.step()
        self.count.assign(self.count + 1.0)
        return loss

    def now(self):
        return standing(self.state), tg.random.get_state()

    def look(self):
        """What a handler may do: read everything."""
        parts = (self.w, self.v, self.table, self.count)
        read = [(p.numpy(), np.array(p.data), p.grad) for p in parts]
        return read, self.optimizer.state["w"]["mean"].numpy(), self.optimizer.steps


class Beside:
    """A model whose steps are compiled, or not, and an eager twin that takes as many.

    :param scans: How many steps a call is to take by a scan; with 0 it is a step.
    """

    def __init__(self, engine, compiled=True, scans=0, **options):
        self.engine, self.twin = engine, Model(has_table=not scans)
        self.model = Model(has_table=not scans)
        self.step = tg.compile(self.model.step, **options) if compiled else self.model.step
        self.call = lambda: self.step.scan(np.stack([X] * scans)) if scans else self.step(X)
        self.most = max(scans, 1)
        self.signals = self.taken = 0
        self.before = self.model.now()

    def check(self):
        """Hold state to be that before or after each step of the call; return after how many."""
        now = self.model.now()
        taken = int(now[0][3][0]) - int(self.before[0][3][0])
        assert taken in range(self.most + 1)
        if taken:
            tg.random.set_state(self.before[1])
            with tg.use_backend("native"), tg.compile_disabled():
                for _ in range(taken):
                    self.twin.step(X)
        agree(now[0], standing(self.twin.state), self.engine)
        if taken:
            assert now[1] == tg.random.get_state()
        else:
            agree(now[0], self.before[0], "native")
            assert now[1] == self.before[1]
        assert np.geterr() == ERRORS and recorder().capture is None
        assert (tg.param(1.0) * 2.0).requires_grad
        self.before = now
        self.taken += taken
        return taken

    def clean(self):
        """Make a call that nobody interrupts."""
        self.call()
        assert self.check() == self.most


def handler_of(kind, model, seen):
    """Return a signal handler, and what it raises, if anything."""

    def reads(number, frame):
        seen.append(model.look())

    def raises(number, frame):
        seen.append(None)
        raise Stop

    def reads_and_raises(number, frame):
        reads(number, frame)
        raise Stop

    def ctrl_c(number, frame):
        seen.append(None)
        signal.default_int_handler(number, frame)

    return {
        "ctrl-c": (ctrl_c, KeyboardInterrupt),
        "raises": (raises, Stop),
        "reads": (reads, None),
        "reads and raises": (reads_and_raises, Stop),
    }[kind]


KINDS = ["ctrl-c", "raises", "reads", "reads and raises"]


@contextlib.contextmanager
def handling(kind, beside):
    """Install a handler of its own, whatever the process does with the signal."""
    seen = []
    handler, raised = handler_of(kind, beside.model, seen)
    number = signal.SIGINT if kind == "ctrl-c" else signal.SIGALRM
    before = signal.signal(number, handler)
    try:
        yield number, raised, seen
    finally:
        signal.signal(number, before)


def places(call, number=None, hit=None):
    """Return the files of a call's places at which signals are handled; send one at one of them.

    What a handler raises in a callback of the garbage collector or of a weak set, as other
    libraries have them, Python itself drops: the collector waits, and no signal falls there.
    """
    found, held = [], sys.getprofile()

    def profile(frame, event, arg):
        # Closing a generator is an event too, at which no signal is handled.
        begins = event == "call" and not frame.f_code.co_flags & inspect.CO_GENERATOR
        file = frame.f_code.co_filename
        if (begins or event == "c_return") and not file.endswith("_weakrefset.py"):
            found.append(file)
            if len(found) - 1 == hit:
                sys.setprofile(held)
                signal.raise_signal(number)

    gc.disable()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(held)
        gc.enable()
    return found


def interrupted(beside, number, raised, seen, hit):
    """Make a call that is interrupted at one place; tell whether there was such a place."""
    before = len(seen)
    try:
        places(beside.call, number, hit)
    except BaseException as error:
        assert raised is not None and type(error) is raised, error
        assert len(seen) == before + 1
    else:
        assert raised is None or len(seen) == before, "the exception did not arrive"
    beside.signals += len(seen) - before
    return len(seen) > before


def strided(found, wanted, thorough):
    """Return places to hit: all, or as many as wanted, spread evenly, and all about the commit."""
    if thorough:
        return range(len(found))
    commits = ("step_graph.py", "programs.py", "runner.py")
    near = [i for i, file in enumerate(found) if file.endswith(commits)]
    return sorted({*near, *(int(i) for i in np.linspace(0, len(found) - 1, wanted))})


@pytest.fixture(params=["native", "tensorflow", "auto"])
def engine(request):
    if request.param != "native":
        pytest.importorskip("tensorflow")
    saved = tg.random.get_state()
    tg.random.seed(1)
    with tg.use_backend(request.param):
        yield request.param
    tg.random.set_state(saved)


# The engines' handlers; the others with --thorough.
QUICK = {"native": ["ctrl-c", "reads and raises"], "tensorflow": ["reads and raises"], "auto": []}


@pytest.mark.one_in(2, of="native")
@pytest.mark.filterwarnings("ignore:backward ran in the native engine")
@pytest.mark.parametrize(
    ("engine", "kind"),
    [
        pytest.param(engine, kind, marks=[] if kind in kinds else [pytest.mark.thorough])
        for engine, kinds in QUICK.items()
        for kind in KINDS
    ],
    indirect=["engine"],
)
def test_a_run_is_taken_or_not_wherever_a_signal_falls(kind, engine, thorough):
    taken_or_not(kind, engine, thorough)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("engine", ["tensorflow"], indirect=True)
def test_a_run_by_the_public_call_is_taken_or_not(kind, engine, thorough, monkeypatch):
    from tapegraph.lowering import calls

    monkeypatch.setattr(calls, "private", lambda: None)
    taken_or_not(kind, engine, thorough)


def taken_or_not(kind, engine, thorough):
    beside = Beside(engine)
    for _ in range(4):
        beside.clean()
    assert engine_of(beside.step) in (engine, "native")
    for _ in range(2):  # the first in a process has places that no later one has
        found = places(beside.call)
        beside.check()
    with handling(kind, beside) as (number, raised, seen):
        for hit in strided(found, 40 if engine == "native" else 12, thorough):
            interrupted(beside, number, raised, seen, hit)
            beside.check()
            if hit % 7 == 0:
                beside.clean()
    print(
        f"{engine}, {kind}: {beside.signals} signals in {len(found)} places, {beside.taken} taken"
    )
    assert beside.signals >= (10 if engine != "native" else 50)
    beside.clean()


@pytest.mark.parametrize("kind", ["ctrl-c", pytest.param("reads", marks=pytest.mark.thorough)])
@pytest.mark.parametrize(
    ("engine", "held"),
    [("native", 1), pytest.param("native", 1 << 18, marks=pytest.mark.thorough), ("tensorflow", 1)],
    indirect=["engine"],
)
def test_a_scan_stops_between_two_calls_wherever_a_signal_falls(
    kind, engine, held, thorough, monkeypatch
):
    monkeypatch.setattr(programs, "_MOST_BYTES_NATIVELY", held)
    beside = Beside(engine, scans=3)
    for _ in range(4):
        beside.clean()
    assert engine_of(beside.step) == engine
    runs = []
    for _ in range(4):  # a scan may hold a real call, which has other places
        runs.append(places(beside.call))
        beside.check()
    found = min(runs, key=len)
    parts = set()
    with handling(kind, beside) as (number, raised, seen):
        for hit in strided(found, 20 if engine == "native" else 10, thorough):
            interrupted(beside, number, raised, seen, hit)
            parts.add(beside.check())
    assert beside.signals >= 10
    # A loop is one piece, natively of as many runs as it may hold.
    assert kind != "ctrl-c" or parts >= ({0, 1, 2} if engine == "native" and held == 1 else {0})
    beside.clean()


@pytest.mark.parametrize(
    "kind",
    ["reads and raises", *(pytest.param(k, marks=pytest.mark.thorough) for k in KINDS[1:3])],
)
@pytest.mark.parametrize(
    ("call", "engine"),
    [
        ("the first", "native"),
        ("the second", "native"),
        ("the third", "native"),
        pytest.param("the third", "tensorflow", marks=pytest.mark.thorough),
        ("a verified one", "native"),
    ],
    indirect=["engine"],
)
def test_a_recorded_call_is_taken_or_not_wherever_a_signal_falls(call, kind, engine, thorough):
    before = {"the first": 0, "the second": 1, "the third": 2, "a verified one": 3}[call]
    options = {"verify_every": 4} if call == "a verified one" else {}

    def fresh():
        beside = Beside(engine, **options)
        for _ in range(before):
            beside.clean()
        return beside

    for _ in range(2):  # the first in a process has places that no later one has
        found = places(fresh().call)
    signals = 0
    wanted = {"native": 4, "tensorflow": 3}[engine]
    hits = range(len(found))
    if engine == "tensorflow":
        # An exception in its own lines, as it traces, leaves it amid a graph.
        ours = (*tg.__path__, *tg.lowering.__path__)
        hits = [i for i in hits if found[i].startswith(ours)]
    for i in np.linspace(0, len(hits) - 1, wanted * (20 if thorough else 1)).astype(int):
        beside = fresh()
        with handling(kind, beside) as (number, raised, seen):
            interrupted(beside, number, raised, seen, hits[i])
        beside.check()
        for _ in range(3):
            beside.clean()
        signals += beside.signals
    print(f"{engine}, {call}, {kind}: {signals} signals in {len(found)} places")
    assert signals >= wanted - 2


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", KINDS)
def test_an_eager_optimizers_step_is_taken_or_not(kind, thorough):
    w, u, v = tg.param([1.0, 2.0]), tg.param([3.0, 4.0]), tg.Value(1.0)
    held = u.data  # so that its array is replaced, and that of w changed in place
    optimizers = [tg.SGD([w, u, v], lr=0.125), tg.Adam([w, u, v], lr=0.5)]
    signals = 0
    for optimizer in optimizers:

        def now(optimizer=optimizer):
            return [w.numpy(), u.numpy(), np.array(v.data), optimizer.state_dict()["state"]]

        def restore(saved, optimizer=optimizer):
            w.data[...] = saved[0][0]
            u.assign(saved[0][1])
            v.data = float(saved[0][2])
            optimizer.load_state_dict(saved[1])

        w.grad, u.grad, v.grad = [1.0, 2.0], [4.0, 8.0], 16.0
        start = [now(), optimizer.state_dict()]
        found = places(optimizer.step)
        after = now()
        seen = []
        for hit in strided(found, 60, thorough):
            restore(start)
            handler, raised = handler_of(kind, Model(), seen)
            previous = signal.signal(signal.SIGALRM, handler)
            try:
                places(optimizer.step, signal.SIGALRM, hit)
            except (Stop, KeyboardInterrupt) as error:
                assert type(error) is raised
            finally:
                signal.signal(signal.SIGALRM, previous)
            agree(now(), start[0] if optimizer.steps == 0 else after, "native")
            assert np.geterr() == ERRORS
        signals += len(seen)
    assert signals > 50 and held is not None


@pytest.mark.parametrize("kind", ["raises", "ctrl-c"])
def test_an_eager_backward_adds_all_gradients_or_none(kind, thorough):
    w, u, v = tg.param([1.0, 2.0]), tg.param([3.0, 4.0]), tg.param(np.ones((4, 2)))
    y = tg.sum(w * u) + tg.sum(tg.gather(v, [0, 2, 0]))
    a, b = tg.Value(2.0), tg.Value(3.0)
    z = a * b + a
    for root, leaves in ((y, (w, u, v)), (z, (a, b))):
        root.backward()
        found = places(root.backward)
        seen = []
        handler, raised = handler_of(kind, Model(), seen)
        previous = signal.signal(signal.SIGALRM, handler)
        try:
            for hit in strided(found, 60, thorough):
                if hit % 2:  # zeroed, and stored by this one
                    leaves[0].zero_grad()
                    want = [0.0 * np.array(leaves[0].grad)]
                else:
                    want = [np.array(leaves[0].grad)]
                leaves[1].grad = None if hit % 3 == 0 and root is y else leaves[1].grad
                before = want + [None if p.grad is None else np.array(p.grad) for p in leaves[1:]]
                with contextlib.suppress(raised):
                    places(root.backward, signal.SIGALRM, hit)
                moved = [not np.array_equal(p.grad, g) for p, g in zip(leaves, before, strict=True)]
                assert all(moved) or not any(moved), hit
        finally:
            signal.signal(signal.SIGALRM, previous)
        assert len(seen) > (20 if root is y else 5)


# ------------------------------------------------------------------ what is read meanwhile


def test_a_parameter_away_is_read_by_a_handler_while_it_is_fetched():
    pytest.importorskip("tensorflow")
    with tg.use_backend("tensorflow"):
        w = tg.param([1.0, 2.0, 3.0])
        step = tg.compile(lambda x: w.assign((w * 0.5 + x).detach()))
        want = w.numpy()
        signals = 0
        for kind in KINDS:
            for hit in range(1000):
                step(X)
                want = want * 0.5 + X
                seen = []

                def handler(number, frame, kind=kind, seen=seen):
                    seen.append(w.numpy() if "reads" in kind else None)
                    if kind != "reads":
                        raise Stop

                previous = signal.signal(signal.SIGALRM, handler)
                try:
                    places(lambda: w.data, signal.SIGALRM, hit)
                except Stop:
                    assert kind != "reads"
                finally:
                    signal.signal(signal.SIGALRM, previous)
                for array in (*(s for s in seen if s is not None), w.numpy(), w.data):
                    np.testing.assert_array_equal(array, want)
                signals += len(seen)
                if not seen:
                    break
        assert signals > 40


def test_what_is_raised_where_tensorflow_reads_its_context_arrives(monkeypatch):
    """Its constructor of eager tensors reads a property in Python, and drops what is raised."""
    pytest.importorskip("tensorflow")
    from tensorflow.python.eager import context

    read, reads, hit = type(context.context())._handle.fget, [0], None

    def handle(self):
        reads[0] += 1
        if reads[0] - 1 == hit:
            signal.raise_signal(signal.SIGALRM)
        return read(self)

    def handler(number, frame):
        raise Stop

    w = tg.param([1.0, 2.0])

    @functools.partial(tg.compile, verify_every=None)
    def step(x, rate, mask, count):
        return w.assign(tg.where(mask, w.detach() * rate + x, w.detach()) * count)

    def call():
        k = len(arrived) + 2.0
        w.data = w.data + 1.0  # which goes to its variable
        reads[0] = 0
        step(np.full(2, k), k, np.array([True, False]), np.int32(1))
        return reads[0]

    arrived = []
    with tg.use_backend("tensorflow"):
        for _ in range(3):
            call()
        monkeypatch.setattr(type(context.context()), "_handle", property(handle))
        previous = signal.signal(signal.SIGALRM, handler)
        try:
            for hit in range(100):
                before = w.numpy()
                try:
                    call()
                except Stop:
                    arrived.append(hit)
                    np.testing.assert_array_equal(w.numpy(), before + 1.0)
                else:
                    assert reads[0] <= hit, "the exception did not arrive"
                    break
        finally:
            signal.signal(signal.SIGALRM, previous)
    assert arrived


# ------------------------------------------------------------------ at any time


def storm(engine, signals, kinds=KINDS, seconds=200.0):
    """Interrupt compiled calls at random times; return how many signals came, and steps taken."""
    beside = Beside(engine, verify_every=50)
    rng = random.Random(0)
    for _ in range(6):
        beside.clean()
    start = time.perf_counter()
    for _ in range(20):
        beside.clean()
    span = 1.2 * min(_timed(beside) for _ in range(20))
    sent, end = 0, start + seconds
    while sent < signals and time.perf_counter() < end:
        kind = kinds[sent % len(kinds)]
        with handling(kind, beside) as (number, raised, seen):
            if number is signal.SIGINT:
                signal.signal(signal.SIGALRM, signal.getsignal(signal.SIGINT))
            arrived = False
            try:
                signal.setitimer(signal.ITIMER_REAL, max(1e-6, rng.uniform(0.0, span)))
                beside.step(X)
                _wait(seen)
            except (Stop, KeyboardInterrupt) as error:
                assert type(error) is raised, error
                arrived = True
            assert len(seen) == 1 and arrived == (raised is not None)
        sent += 1
        beside.check()
        if sent % 10 == 0:
            beside.clean()
    return sent, beside.taken


def _wait(seen):
    """Wait for a signal that comes after the call.

    A function of its own: Python 3.13 handles a signal where a loop jumps back, and a `try` around
    the loop does not cover that instruction.
    """
    while not seen:
        pass


def _timed(beside):
    start = time.perf_counter()
    beside.step(X)
    took = time.perf_counter() - start
    beside.check()
    return took


STORM = """
    import faulthandler, gc, warnings
    faulthandler.dump_traceback_later(280, exit=True)
    warnings.simplefilter("ignore")
    import tapegraph as tg
    from tests.compiling import test_interrupts
    gc.disable()
    with tg.use_backend({engine!r}):
        sent, taken = test_interrupts.storm({engine!r}, {signals})
    print(sent, "signals", taken, "taken")
"""


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ["native", "tensorflow"])
def test_signals_at_random_times(engine, run_python, thorough):
    if engine == "tensorflow":
        pytest.importorskip("tensorflow")
    wanted = 5000 if thorough else 100
    done = run_python(STORM.format(engine=engine, signals=wanted))
    print(done.stdout)
    assert done.returncode == 0, done.stderr
    assert "Exception ignored" not in done.stderr
    assert done.stdout.startswith(f"{wanted} signals")
