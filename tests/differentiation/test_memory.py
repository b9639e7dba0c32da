"""Memory stays flat without ever calling `tape_reset`, and depth is no limit."""

from __future__ import annotations

import gc
import threading
import tracemalloc
import weakref

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.engines import registry
from tapegraph.engines.engine import EngineDeclined
from tapegraph.recording import scopes

pytestmark = pytest.mark.usefixtures("few_objects")

KILOBYTE = 2**10


@pytest.fixture(autouse=True)
def native():
    tg.set_backend("native")


@pytest.fixture
def no_collector():
    """Leave freeing to reference counts alone."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def growth(work, times):
    """Return how many bytes more Python and NumPy hold after ``work``, which ran before too."""
    tracemalloc.start()
    try:
        held = []
        for _ in range(2):
            for _ in range(times):
                work()
            tg.tape().prune()  # it forgets dead entries in thousands
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    return held[1] - held[0]


def test_forward_ops_keep_memory_flat(no_collector):
    x = tg.param(np.ones(50))

    def forward():
        y = x
        for _ in range(10):
            y = y * 1.5

    # One weak reference that stayed would be 400 kB, one array 2,000.
    assert growth(forward, 500) < 20 * KILOBYTE


def test_training_steps_keep_memory_flat(no_collector):
    rng = np.random.default_rng(0)
    data, targets = rng.normal(size=(8, 4)), rng.integers(0, 3, size=8)
    w, b = tg.param(np.zeros((4, 3))), tg.param(np.zeros(3))
    optimizer = tg.SGD([w, b], lr=0.01)

    def train():
        optimizer.zero_grad()
        tg.softmax_crossentropy(data @ w + b, targets).backward()
        optimizer.step()

    assert growth(train, 500) < 20 * KILOBYTE


def test_new_parameters_and_failing_calls_keep_memory_flat():
    def attempt():
        w = tg.param(np.ones(200))
        y = w * 2.0
        with pytest.raises(ValueError, match="shapes"):
            y + np.ones(3)
        y.backward()
        tg.zero_grad()

    assert growth(attempt, 500) < 20 * KILOBYTE


@pytest.mark.parametrize("differentiate", [False, True])
def test_dropped_results_are_freed_at_once(no_collector, differentiate):
    x = tg.param(np.ones((3, 3)))
    a = tg.sin(x)
    b = a @ x
    y = tg.sum(b[0])
    b.retain_grad()
    if differentiate:
        y.backward()
    nodes = [weakref.ref(t) for t in (a, b, y)]
    arrays = [weakref.ref(t._array) for t in (a, b, y)]
    del a, b, y
    assert [r() for r in nodes + arrays] == [None] * 6


def test_dropped_leaf_is_freed_at_once(no_collector):
    x = tg.param(np.ones(3))
    (x * x).sum().backward()
    leaf = weakref.ref(x)
    del x
    assert leaf() is None
    tg.zero_grad()


@pytest.mark.parametrize("make", [lambda x: x.data, lambda x: x.data[1:].T, lambda x: x.detach()])
def test_arrays_handed_out_make_no_cycle(no_collector, make):
    x = tg.param(np.ones((2, 2)))
    out, leaf = make(x), weakref.ref(x)
    del x, out
    assert leaf() is None


def test_results_die_with_a_failed_backward(no_collector):
    x = tg.param(np.ones(3))
    y = x * 2.0
    x.data[0] = 5.0
    result = weakref.ref(y)
    try:
        y.backward()
    except RuntimeError:
        pass
    del y
    assert result() is None


def test_tape_forgets_dead_entries():
    x = tg.param(1.0)
    for _ in range(100_000):
        x * 2.0
    assert len(tg.tape().refs) < 10_000
    assert [e.op for e in tg.tape()] == ["param"]


def test_tape_forgets_dead_parameters():
    for _ in range(10_000):
        tg.param(1.0)
    assert len(tg.tape().params) < 10
    assert len(tg.tape()) == 0


def test_a_long_live_graph_is_kept_whole():
    x = tg.param(1.0)
    results = [x * float(i) for i in range(20_000)]
    assert len(tg.tape()) == 1 + 2 * len(results)
    results[0].backward()
    results[-1].backward()
    assert x.grad == 19_999.0


def chain(x, length):
    y = x
    for _ in range(length):
        y = y + x
    return y


def test_100_000_op_chain_differentiates_and_dies(no_collector):
    x = tg.param(2.0)
    y = chain(x, 100_000)
    y.backward()
    assert x.grad == 100_001.0
    assert len(tg.tape()) == 100_001
    del y
    assert len(tg.tape()) == 1


def test_the_tape_of_a_long_chain_prints():
    y = chain(tg.param(2.0), 5_000)
    assert str(tg.tape()).count("\n") == 5_001
    del y


def test_deep_chain_fits_a_small_stack():
    results = []

    def work():
        tg.set_backend("native")
        x = tg.param(2.0)
        y = chain(x, 100_000)
        y.backward()
        tg.tape_reset()
        results.append(x.grad)

    previous = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=work)
        thread.start()
    finally:
        threading.stack_size(previous)
    thread.join()
    assert results == [100_001.0]


def test_abandoned_scopes_leave_nothing_behind():
    def quiet():
        with tg.no_grad(), tg.use_backend("native"):
            yield

    for _ in range(100):
        next(quiet())
    assert scopes.RECORDING.entered.get() == scopes.BACKEND.entered.get() == ()


def test_an_engine_that_refuses_keeps_no_program_alive(no_collector, monkeypatch):
    """Its error holds the frames that it went through."""

    def refuse(history):
        raise EngineDeclined("not today")

    monkeypatch.setattr(registry.engine("tensorflow"), "unavailable", lambda: None)
    monkeypatch.setattr(registry.engine("tensorflow"), "refusal", refuse)
    x = tg.param([1.0, 2.0])
    with tg.use_backend("auto"):
        y = tg.sum(x * x)
        y.backward()
        assert tg.last_backward().reason == "not today"
    seen = weakref.ref(y)
    del y
    assert seen() is None
