"""One step of any optimizer: all of it or nothing, of its own arrays, sparse where it may be."""

from __future__ import annotations

import gc
import sys
import tracemalloc

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.row_sparse import RowSparse
from tests.optim.trajectories import CONFIGS

EVERY = {**CONFIGS, "Lion": ("Lion", {"weight_decay": 0.1})}
every = pytest.mark.parametrize("name", EVERY)


def make(name, params, lr=0.1):
    kind, options = EVERY[name]
    return getattr(tg, kind)(params, lr=lr, **options)


# -- all or nothing ------------------------------------------------------------------------------


class Failing(tg.Optimizer):
    """Fails at the second parameter."""

    def __init__(self, params, result):
        self.result = result
        super().__init__(params, lr=0.1)

    def init(self, p):
        return {"sum": np.zeros_like(p)}

    def update(self, p, g, state, lr):
        if p.shape == (2,):
            return p - lr * g, {"sum": state["sum"] + g}
        return self.result(p, g, state)


def raises(p, g, state):
    raise KeyboardInterrupt


def writes(p, g, state):
    p -= g


def writes_to_the_gradient(p, g, state):
    g *= 2.0


FAILURES = {
    "raises": (raises, KeyboardInterrupt, None),
    "writes": (writes, ValueError, "read-only"),
    "writes to the gradient": (writes_to_the_gradient, ValueError, "read-only"),
    "shape": (
        lambda p, g, state: (p[:1], state),
        ValueError,
        r"shape \(1,\) from update for 'p' of '1'; expected dtype float64 and shape \(3,\)",
    ),
    "dtype": (
        lambda p, g, state: (p.astype("f4"), state),
        TypeError,
        "dtype float32 and shape .3,. from update for 'p' of '1'",
    ),
    "a slot's dtype": (
        lambda p, g, state: (p, {"sum": g > 0}),
        TypeError,
        "dtype bool .* for 'sum' of '1'",
    ),
    "a slot missing": (lambda p, g, state: (p, {}), ValueError, r"slots \[\] .*\['sum'\]"),
    "a slot more": (
        lambda p, g, state: (p, {**state, "b": p}),
        ValueError,
        r"slots \['b', 'sum'\] from update for '1'",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_step_that_fails_changes_nothing(name):
    result, error, message = FAILURES[name]
    a, b = tg.param([1.0, 2.0]), tg.param([1.0, 2.0, 3.0])
    (a.sum() + (b * b).sum()).backward()
    optimizer = Failing([a, b], result)
    with pytest.raises(error, match=message):
        optimizer.step()
    np.testing.assert_array_equal(a.data, [1.0, 2.0])
    np.testing.assert_array_equal(b.data, [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(a.grad, [1.0, 1.0])
    np.testing.assert_array_equal(b.grad, [2.0, 4.0, 6.0])
    assert not any(slots["sum"].data.any() for slots in optimizer.state.values())
    assert optimizer.steps == 0


@pytest.mark.parametrize("huge", [1e308, -1e308])
def test_a_descent_that_overflows_is_not_left_half_done(huge):
    a, b, v = tg.param([1.0]), tg.param([huge]), tg.Value(1.0)
    a.grad, b.grad, v.grad = [1.0], [huge], 1.0
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        tg.SGD([v, a, b], lr=10.0).step()  # in lr * g
    assert (v.data, a.item(), b.item()) == (1.0, 1.0, huge)
    b.grad = [-huge]
    with np.errstate(all="raise"):
        tg.SGD([v, b, a], lr=1.0).step()  # in p - lr * g: all of it is done
    assert (v.data, a.item(), b.item()) == (0.0, 0.0, np.copysign(np.inf, huge))


@pytest.mark.filterwarnings("ignore:Setting the:DeprecationWarning")
def test_a_gradient_reshaped_by_its_user_is_refused():
    for kind in (tg.SGD, tg.Adam):
        a, b = tg.param([[1.0]]), tg.param([[1.0, 2.0, 3.0]], name="b")
        (a * b).sum().backward()
        b.grad.shape = (3, 1)
        with pytest.raises(RuntimeError, match=r"\.grad of shape \(3, 1\) .* 'b'"):
            kind([a, b], lr=0.1).step()
        assert (a.shape, b.shape, a.item()) == ((1, 1), (1, 3), 1.0)


def test_without_a_rule_it_says_so():
    x = tg.param(1.0)
    x.backward()
    with pytest.raises(NotImplementedError, match=r"Optimizer: .*update\(self"):
        tg.Optimizer([x], lr=0.1).step()


# -- whose arrays they are -----------------------------------------------------------------------


@every
def test_arrays_handed_out_and_results_keep_their_numbers(name):
    x = tg.param([[1.0, -2.0], [3.0, 4.0]])
    optimizer = make(name, {"x": x})
    (x * x).sum().backward()
    optimizer.step()
    held = [x.data, x.numpy(), x.data[0], x.T, x.grad]
    held += [slot.data for slot in optimizer.state["x"].values()]
    copies = [np.array(h.data if isinstance(h, tg.Tensor) else h) for h in held]
    optimizer.step()
    for h, copy in zip(held, copies, strict=True):
        np.testing.assert_array_equal(h.data if isinstance(h, tg.Tensor) else h, copy)


@every
def test_a_graph_from_before_a_step_is_stale(name):
    x = tg.param([1.0, 2.0], name="x")
    optimizer = make(name, [x])
    y = (x * x).sum()
    y.backward()
    optimizer.step()
    with pytest.raises(RuntimeError, match="'x' was changed after the mul"):
        y.backward()


def test_a_rule_may_return_what_it_was_given():
    class Last(tg.Optimizer):
        def init(self, p):
            return {"last": np.zeros_like(p), "first": p}

        def update(self, p, g, state, lr):
            return p, {"last": g, "first": p}

    x = tg.param([1.0, 2.0], name="x")
    optimizer = Last([x], lr=0.1)
    x.sum().backward()
    optimizer.step()
    x.sum().backward()  # adds to the gradient in place
    x.data[0] = 5.0
    np.testing.assert_array_equal(optimizer.state["x"]["last"].data, [1.0, 1.0])
    np.testing.assert_array_equal(optimizer.state["x"]["first"].data, [1.0, 2.0])


def test_results_that_are_one_array_become_two():
    class Twice(tg.Optimizer):
        def init(self, p):
            return {"a": np.zeros_like(p), "b": np.zeros_like(p)}

        def update(self, p, g, state, lr):
            new = p - lr * g
            return new, {"a": new, "b": new}

    x = tg.param([1.0, 2.0], name="x")
    optimizer = Twice([x], lr=1.0)
    x.sum().backward()
    optimizer.step()
    arrays = [x._array, *(slot._array for slot in optimizer.state["x"].values())]
    assert not any(np.shares_memory(a, b) for a in arrays for b in arrays if a is not b)
    assert len(set(map(id, arrays))) == 3


@every
def test_zeroed_gradients_are_zeros(name):
    # An optimizer with a memory moves on; zeros that were read and zeros that were not are one.
    read, unread = tg.param([1.0, -2.0]), tg.param([1.0, -2.0])
    optimizers = [make(name, [p]) for p in (read, unread)]
    for p, optimizer in zip((read, unread), optimizers, strict=True):
        (p * p).sum().backward()
        optimizer.step()
        p.zero_grad()
    np.testing.assert_array_equal(read.grad, [0.0, 0.0])
    for optimizer in optimizers:
        optimizer.step()
    np.testing.assert_array_equal(read.data, unread.data)


@every
@pytest.mark.one_in(3)
def test_empty_and_0d_parameters(name, made):
    for shape in ((0, 3), ()):
        x = tg.param(np.full(shape, 2.0))
        optimizer = make(name, [x])

        @made
        def step(x=x, optimizer=optimizer):
            optimizer.zero_grad()
            (x * x).sum().backward()
            optimizer.step()

        for _ in range(3):
            step()
        assert (x.shape, x.dtype) == (shape, np.float64)
        assert np.all(x.data < 2.0)


@pytest.mark.parametrize(
    "name",
    ["SGD dampening", "Adam amsgrad", "RMSprop everything"],
)
@pytest.mark.usefixtures("few_objects")
def test_memory_is_flat(name):
    x = tg.param(np.ones(1000))
    optimizer = make(name, [x], lr=1e-3)

    def work(steps):
        for _ in range(steps):
            optimizer.zero_grad()
            (x * x).sum().backward()
            optimizer.step()
        tg.tape().prune()
        gc.collect()
        return sys.getallocatedblocks()

    held = [work(50)]
    # Free lists fill up, more and more slowly; an object per step that stayed would be 200 blocks
    # every time.
    while len(held) < 3 or (held[-1] - held[-2] >= 100 and len(held) < 15):
        held.append(work(200))
    assert held[-1] - held[-2] < 100, held


# -- row-sparse gradients ------------------------------------------------------------------------

ROWS = np.array([5, 1, 5, 0])


def run(name, lookup, steps=4):
    rng = np.random.default_rng(0)
    table = tg.param(rng.normal(size=(8, 3)))
    optimizer = make(name, {"table": table})
    sparse = []
    for n in range(steps):
        optimizer.zero_grad()
        tg.sum(lookup(table, (ROWS + n) % 8) * rng.normal(size=(4, 3))).backward()
        sparse.append(isinstance(table._grad, RowSparse))
        before = table._grad
        optimizer.step()
        sparse.append(table._grad is before)
    return table.numpy(), optimizer.state_dict()["state"], sparse


def one_hot(table, rows):
    return np.eye(8)[rows] @ table


@every
def test_rows_are_updated_as_the_whole_table_would_be(name):
    got, state, sparse = run(name, tg.gather)
    want, dense, _ = run(name, one_hot)
    np.testing.assert_allclose(got, want, rtol=1e-12)
    for key in dense["table"]:
        np.testing.assert_allclose(state["table"][key], dense["table"][key], rtol=1e-12, atol=1e-15)
    kind, options = EVERY[name]
    stays = kind in ("SGD", "Adagrad") and not {"momentum", "weight_decay"} & set(options)
    assert sparse == [True, stays] * 4


def test_adagrad_needs_memory_for_the_rows_only():
    tg.set_backend("native")
    table = tg.param(np.zeros((20_000, 64)))
    optimizer = tg.Adagrad([table], lr=0.1, lr_decay=0.1)

    def step():
        optimizer.zero_grad()
        tg.sum((tg.gather(table, np.arange(100)) - 1.0) ** 2).backward()
        optimizer.step()

    step()
    tracemalloc.start()
    step()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < table.data.nbytes / 10


def test_rows_of_arrays_handed_out_are_copied():
    table = tg.param(np.zeros((4, 2)))
    optimizer = tg.Adagrad({"t": table}, lr=0.5, eps=0.0)
    held, sums = table.data, optimizer.state["t"]["square"].data
    tg.sum(tg.gather(table, [1])).backward()
    optimizer.step()
    np.testing.assert_array_equal(held, np.zeros((4, 2)))
    np.testing.assert_array_equal(sums, np.zeros((4, 2)))
    np.testing.assert_array_equal(table.data[1], [-0.5, -0.5])


@pytest.mark.parametrize("kind", [tg.SGD, tg.Adagrad])
def test_a_subclass_with_a_rule_of_its_own_gets_the_whole_gradient(kind):
    class Drift(kind):
        def update(self, p, g, state, lr):
            return p - lr * (g + 1.0), state

    table = tg.param(np.zeros((4, 2)))
    tg.sum(tg.gather(table, [1])).backward()
    Drift([table], lr=0.5).step()
    np.testing.assert_array_equal(table.data[:, 0], [-0.5, -1.0, -0.5, -0.5])
