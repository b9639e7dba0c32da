"""Compiled steps in TensorFlow: where state lives, tables by rows, what runs natively instead."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.lowering.steps import variables
from tapegraph.lowering.steps.variables import tables
from tapegraph.recording.values import is_remote
from tests.optional import optional

optional("tensorflow")

pytestmark = pytest.mark.versions

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def tensorflow():
    with tg.use_backend("tensorflow"):
        yield


def ran(step) -> str:
    line = step.explain().partition("ran in ")[2].partition("\n")[0]
    return line.partition("; not with XLA")[0]


def both(make, calls, monkeypatch=None):
    """A step eagerly and compiled over the same calls; returns the compiled one, and the params."""
    eager, params = make()
    step, others = make()
    step = tg.compile(step)
    for given in calls:
        with tg.use_backend("native"):
            want = eager(*given)
        got = step(*given)
        np.testing.assert_allclose(got.data, want.detach().data, rtol=1e-9, atol=1e-12)
    for p, other in zip(params, others, strict=True):
        np.testing.assert_allclose(other.data, p.data, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(other.grad, p.grad, rtol=1e-9, atol=1e-12)
    return step, others


# ------------------------------------------------------------------ state


def descent():
    w = tg.param([1.0, 2.0])
    optimizer = tg.SGD([w], lr=0.1)

    def step(x):
        loss = tg.sum((w * x) ** 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step, [w]


CALLS = [(x,) for x in RNG.normal(size=(6, 2))]


def test_parameters_stay_until_they_are_read():
    step, (w,) = descent()
    step = tg.compile(step)
    for call in CALLS[:5]:
        step(*call)
    assert ran(step) == "tensorflow"
    assert is_remote(w)
    before = w.numpy()
    assert not is_remote(w)
    step(*CALLS[5])
    assert is_remote(w)
    x = CALLS[5][0]
    np.testing.assert_allclose(w.data, before - 0.2 * before * x * x, rtol=1e-12)


def test_what_the_user_writes_is_seen():
    eager, (p,) = descent()
    step, (w,) = descent()
    step = tg.compile(step)
    writes = [
        lambda t: None,
        lambda t: None,
        lambda t: t.assign([3.0, -1.0]),
        lambda t: setattr(t, "data", t.data * 2.0),
        lambda t: t.data.__setitem__(0, 5.0),
        lambda t: t.data.fill(0.5),
    ]
    for write, call in zip(writes, CALLS, strict=True):
        for leaf, f in ((p, eager), (w, step)):
            write(leaf)
            with tg.use_backend("native" if f is eager else "tensorflow"):
                f(*call)
        np.testing.assert_allclose(w.data, p.data, rtol=1e-12)
    assert step.traces == 1


def test_two_traces_two_steps_and_eager_code_share_a_parameter():
    w, other = tg.param([1.0, 2.0]), tg.param([1.0, 2.0])

    def make(leaf):
        def halve(x):
            leaf.assign(leaf.detach() * 0.5 + tg.sum(x))
            return tg.sum(leaf * 1.0)

        def square(x):
            leaf.assign(leaf.detach() ** 2 * 0.1 + x)
            return tg.sum(leaf * 1.0)

        return halve, square

    halve, square = map(tg.compile, make(w))
    eagerly = make(other)
    for i in range(8):
        for x in (np.ones(2), np.ones(3)):
            halve(x), eagerly[0](x)
        square(0.25 * i), eagerly[1](0.25 * i)
        if i == 5:
            for leaf in (w, other):
                leaf.assign(leaf.data + 1.0)
        np.testing.assert_allclose(tg.sum(w).item(), tg.sum(other).item(), rtol=1e-12)
    np.testing.assert_allclose(w.data, other.data, rtol=1e-12)
    assert halve.traces == 2 and len([k for k in variables._known if k[0] == id(w)]) == 1


def test_engines_in_turn():
    eager, (p,) = descent()
    step, (w,) = descent()
    step = tg.compile(step)
    for i, call in enumerate(CALLS * 3):
        with tg.use_backend("native"):
            eager(*call)
        with tg.use_backend(("tensorflow", "native")[i // 2 % 2]):
            step(*call)
        np.testing.assert_allclose(w.grad, p.grad, rtol=1e-9)
    np.testing.assert_allclose(w.data, p.data, rtol=1e-9)


def test_gradients_are_fetched_when_read_and_never_overwritten():
    step, (w,) = descent()
    step = tg.compile(step)
    for call in CALLS[:3]:
        step(*call)
    held = w.grad
    kept = held.copy()
    step(*CALLS[4])
    np.testing.assert_array_equal(held, kept)
    step(*CALLS[5])
    before = np.array(w.grad)
    step(*CALLS[5])
    with tg.use_backend("native"):  # an eager backward adds to what the engine holds
        tg.sum(w).backward()
    assert not np.array_equal(w.grad, before) and w.grad.shape == (2,)


def test_a_variable_goes_with_its_tensor():
    step, (w,) = descent()
    step = tg.compile(step)
    for call in CALLS[:4]:
        step(*call)
    key, gone = id(w), weakref.ref(w)
    assert any(k[0] == key for k in variables._known)
    del step, w, call
    gc.collect()
    assert gone() is None
    assert not any(k[0] == key for k in variables._known)


def test_large_constants_and_integer_state():
    table = RNG.normal(size=(70, 20))
    count = tg.tensor(np.zeros(3, np.int64))

    def make():
        w = tg.param(np.ones(20))

        def step(x):
            count.assign(count + 1)
            w.grad = None
            loss = tg.sum((table @ w) * x)
            loss.backward()
            return loss

        return step, [w]

    both(make, [(x,) for x in RNG.normal(size=(5, 70))])
    np.testing.assert_array_equal(count.data, [10, 10, 10])


# ------------------------------------------------------------------ tables by rows


def embedding(read, rate=0.5, **options):
    def make():
        table = tg.param(np.random.default_rng(1).normal(size=(40, 3)))
        optimizer = tg.SGD([table], lr=rate, **options)

        def step(ids, target):
            loss = tg.mse_loss(read(table, ids), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        return step, [table]

    return make


LOOKUPS = [(RNG.integers(-3, 6, size=7), RNG.normal(size=(7, 3))) for _ in range(6)]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("read", "by_rows"),
    {
        "gather": (lambda t, i: tg.gather(t, i), True),
        "index": (lambda t, i: t[i], True),
        "twice": (lambda t, i: t[i] + tg.gather(t, i[::-1]), True),
        "along columns": (lambda t, i: tg.gather(t, np.arange(3), axis=1)[i], False),
        "also whole": (lambda t, i: t[i] + tg.mean(t), False),
    }.values(),
)
def test_a_table_is_updated_by_the_rows_that_were_read(read, by_rows, monkeypatch):
    found = []
    monkeypatch.setattr(
        "tapegraph.lowering.steps.step_graph.tables", lambda p: found.append(tables(p)) or found[-1]
    )
    step, _ = both(embedding(read), LOOKUPS)
    assert ran(step) == "tensorflow"
    assert [bool(f) for f in found] == [by_rows]


@pytest.mark.parametrize("options", [{"momentum": 0.9}, {"weight_decay": 0.1}])
def test_a_rule_that_changes_every_row_does(options):
    both(embedding(lambda t, i: t[i], **options), LOOKUPS)


def test_gradients_of_a_table_that_add_up():
    def make():
        table = tg.param(np.random.default_rng(1).normal(size=(40, 3)))
        optimizer = tg.SGD([table], lr=0.5)

        def step(ids, target):
            tg.mse_loss(table[ids], target).backward()
            optimizer.step()
            return tg.sum(table[ids])

        return step, [table]

    both(make, LOOKUPS)


# ------------------------------------------------------------------ what runs natively instead


def test_bad_labels_raise_what_they_raise_eagerly_and_change_nothing():
    w = tg.param(RNG.normal(size=(3, 2)))
    optimizer = tg.Adam([w], lr=0.1)

    @tg.compile
    def step(x, classes):
        loss = tg.softmax_crossentropy(x @ w, classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    x = RNG.normal(size=(4, 3))
    for _ in range(4):
        step(x, np.array([0, 1, 1, 0]))
    before = [w.numpy(), w.grad.copy(), optimizer.state_dict()]
    for _ in range(5):
        with pytest.raises(IndexError, match=r"expected a class in \[0, 2\)"):
            step(x, np.array([0, 1, 2, 0]))
    np.testing.assert_equal([w.numpy(), w.grad, optimizer.state_dict()], before)
    step(x, np.array([0, 1, 1, 0]))
    assert ran(step) == "tensorflow" and optimizer.steps == 5


def test_zeros_that_meet_infinite_slopes_stay_zero(monkeypatch):
    monkeypatch.setenv("TAPEGRAPH_STRICT", "1")  # no failure: it is agreed

    def make():
        w = tg.param([4.0, -1.0, 0.0, 9.0])
        optimizer = tg.SGD([w], lr=0.1)

        def step(x):
            loss = tg.sum(tg.where(w * x > 0, tg.sqrt(w * x), 0.0))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        return step, [w]

    masked = [(np.array(x),) for x in ([1.0, 1, 1, 1], [1.0, -1, 2, 1])] * 2
    with np.errstate(all="ignore"):
        step, (w,) = both(make, masked)
        assert ran(step) == "tensorflow"
        step, _ = both(make, [*masked, (np.array([np.nan, 1.0, 1.0, 1.0]),)])
        assert "only the native engine keeps zeros" in ran(step)
        nan = [(np.array([np.nan, 1.0, 1.0, 1.0]),)]
        step, _ = both(make, [*masked, *nan, *masked, *nan, *nan, *masked])
        assert ran(step) == "tensorflow"
        step, _ = both(make, [*masked, *nan * 3, *masked])
        assert "only the native engine keeps zeros" in ran(step)  # in a row: for good


def test_an_operation_without_a_node_runs_natively_and_says_so():
    def make():
        w = tg.param([1.0, 2.0])

        def step(x):
            w.grad = None
            loss = tg.sum(tg.special.erfcx(w * x))
            loss.backward()
            return loss

        return step, [w]

    with pytest.warns(RuntimeWarning, match="erfcx has no node"):
        step, _ = both(make, CALLS)
    assert ran(step) == "native: erfcx has no node in TensorFlow"
    assert tg.last_backward().reason == "erfcx has no node in TensorFlow"


@pytest.mark.one_in(2)
@pytest.mark.parametrize("op", ["layer_norm", "conv2d", "max_pool2d", "avg_pool2d"])
def test_what_has_a_node_in_steps_alone(op):
    def make():
        x = tg.param(np.random.default_rng(2).normal(size=(2, 3, 6, 6)))
        k = tg.param(np.random.default_rng(3).normal(size=(4, 3, 3, 3)))

        def step(scale):
            y = {
                "layer_norm": lambda: tg.layer_norm(x, np.ones(6), np.zeros(6)),
                "conv2d": lambda: tg.conv2d(x, k, stride=2, pad=1),
                "max_pool2d": lambda: tg.max_pool2d(x, 2),
                "avg_pool2d": lambda: tg.avg_pool2d(x, 3, 2, pad=1),
            }[op]()
            x.grad = k.grad = None
            loss = tg.sum(y * y * y) * scale + tg.sum(k)
            loss.backward()
            return loss

        return step, [x, k]

    step, _ = both(make, [(1.0,), (2.0,), (3.0,), (4.0,)])
    assert ran(step) == "tensorflow"


@pytest.mark.parametrize("compare", [np.less, np.less_equal, np.greater, np.greater_equal])
def test_not_less_is_not_greater_or_equal_for_a_nan(compare):
    step = tg.compile(lambda x: np.logical_not(compare(x, 0.0)))
    x = np.array([np.nan, 1.0, -1.0, 0.0])
    for _ in range(3):
        got = step(x)
    np.testing.assert_array_equal(got.data, ~compare(x, 0.0))


def test_auto_measures_and_chooses():
    step, _ = descent()
    step = tg.compile(step)
    with tg.use_backend("auto"):
        for _ in range(5):
            step(*CALLS[0])
        assert ran(step).startswith("native: auto")
        assert tg.last_backward().backend == "native"


def graphs_of(step):
    """The graphs that a step's programs hold, by weak references."""
    programs = [entry.programs for entry in step._entries]
    steps = [held._runners["tensorflow"].program for held in programs if held is not None]
    return [weakref.ref(step.graphs.graph.call.function.graph) for step in steps]


def test_a_forgotten_trace_leaves_no_graph(few_objects):
    w = tg.param(np.ones(4))
    optimizer = tg.SGD([w], lr=0.1)

    @tg.compile(max_traces=1)
    def step(x):
        optimizer.zero_grad()
        loss = tg.sum(np.tanh(w * x) + np.hypot(w, x))  # constants, and a gradient of ours
        loss.backward()
        optimizer.step()
        return loss

    held = []
    for n in range(1, 4):
        for _ in range(3):
            step(np.ones((n, 4)))
        held += graphs_of(step)
    gc.collect()
    assert len(held) == 3
    assert [graph() is not None for graph in held] == [False, False, True]
    step.reset()
    gc.collect()
    assert held[-1]() is None


def test_a_forgotten_graph_of_a_backward_is_let_go(graph_engine, few_objects):
    graph_engine.set_cache_limit(1)
    held = []
    for n in range(1, 4):
        w = tg.param(np.ones((n, 4)))
        tg.sum(np.tanh(w) * np.hypot(w, 2.0)).backward()
        (entry,) = graph_engine.backward._entries.values()
        held.append(weakref.ref(entry.compiled.graph.function.graph))
        del entry, w
    gc.collect()
    assert [graph() is not None for graph in held] == [False, False, True]


def test_a_square_is_no_power_in_a_step():
    """A power takes a hundred times as long; NumPy squares too."""
    x = np.array([1.5, -0.0, -2.0, 1e50, 1e-50])
    w = tg.param(np.ones(5))

    @tg.compile(verify_every=None)
    def step(x):
        w.grad = None
        y = (x * w) ** 2
        tg.sum(y).backward()
        return y, w.grad

    with tg.use_backend("tensorflow"):
        for _ in range(4):
            y, grad = step(x)
    np.testing.assert_array_equal(y.data, x * x)
    np.testing.assert_array_equal(grad.data, 2 * (x * x))
    (graph,) = graphs_of(step)
    kinds = [node.type for node in graph().get_operations()]
    assert "Square" in kinds and "Pow" not in kinds


def test_a_cube_in_a_step_is_that_of_products():
    x = np.array([1.5, -0.0, -2.0, 1e50, 1e-50])
    step = tg.compile(lambda x: x**3, verify_every=None)
    with tg.use_backend("tensorflow"):
        found = [step(x) for _ in range(4)]
    assert ran(step) == "tensorflow"
    for y in found:
        np.testing.assert_allclose(y.data, x * x * x, rtol=1e-14)


def test_float64_is_rounded_to_float16_once():
    # In float32 the first two are ties.
    x = np.array([1 + 2.0**-11 + 2.0**-30, 1 + 3 * 2.0**-11 - 2.0**-30, -0.1, 1e-300, 1e300])
    w = tg.param(np.ones(5))

    @tg.compile(verify_every=None)
    def step(x):
        w.grad = None
        y = (x * w).astype("float16")
        tg.sum(y * 3.0).backward()
        return y

    with tg.use_backend("tensorflow"), np.errstate(over="ignore"):
        once = x.astype(np.float16).astype(np.float32)
        for _ in range(4):
            np.testing.assert_array_equal(step(x), once)
            assert w.grad.dtype == np.float64
            np.testing.assert_array_equal(w.grad, 3.0 * x)
    assert ran(step) == "tensorflow"
