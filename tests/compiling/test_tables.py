"""Tables of which a step reads rows: compiled natively, they are updated by those rows."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.row_sparse import RowSparse

SHAPE = (40, 3)


def made(read=tg.gather, options=None):
    """Return a table, an SGD step on rows of it that may be repeated, and its optimizer."""
    table = tg.param(np.random.default_rng(0).normal(size=SHAPE).astype(np.float32))
    optimizer = tg.SGD([table], lr=0.1, **(options or {}))

    def step(rows, factors):
        optimizer.zero_grad()
        loss = tg.sum((read(table, rows) - factors) ** 2)
        loss.backward()
        optimizer.step()
        return loss

    return table, step, optimizer


def given(calls=6, count=30, distinct=12):
    rng = np.random.default_rng(1)
    for _ in range(calls):
        rows = rng.integers(0, distinct, count)
        yield rows, rng.normal(size=(count, 3)).astype(np.float32)


READS = {
    "gather": tg.gather,
    "take": lambda table, rows: np.take(table, rows, axis=0),
    "index": lambda table, rows: table[rows],
    "twice": lambda table, rows: tg.gather(table, rows) + tg.gather(table, rows[::-1]),
    "rows and all": lambda table, rows: tg.gather(table, rows) + tg.sum(table),
}
OPTIONS = {
    "plain": {},
    "decay": {"weight_decay": 0.1},
    "momentum": {"momentum": 0.9},
    "schedule": {"lr": tg.optim.schedules.exponential(0.1, 0.9)},
}


@pytest.mark.parametrize("count", [1, 8, 38])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("read", READS)
@pytest.mark.one_in(8)
def test_steps_are_eager_ones_to_the_bit(read, options, count):
    options = dict(OPTIONS[options])
    rate = options.pop("lr", 0.1)
    with tg.use_backend("native"):
        (table, eager, one), (other, step, two) = (made(READS[read], options) for _ in range(2))
        one.lr = two.lr = rate
        compiled = tg.compile(step)
        for rows, factors in given(count=count):
            want, got = eager(rows, factors), compiled(rows, factors)
            assert got.item() == want.item()
            np.testing.assert_array_equal(other.data, table.data)
            np.testing.assert_array_equal(other.grad, table.grad)


def test_the_update_and_the_gradient_are_rows():
    with tg.use_backend("native"):
        table, step, _ = made()
        compiled = tg.compile(step)
        for rows, factors in given():
            compiled(rows, factors)
        assert "RowUpdate(" in compiled.source()
        assert isinstance(table._grad, RowSparse)
        assert set(table._grad.rows) == set(rows)


def test_a_step_needs_memory_for_the_rows_alone():
    with tg.use_backend("native"):
        table = tg.param(np.zeros((20_000, 64)))
        optimizer = tg.SGD([table], lr=0.1)

        @tg.compile
        def step(rows):
            optimizer.zero_grad()
            tg.sum(tg.gather(table, rows) ** 2).backward()
            optimizer.step()

        for _ in range(4):
            step(np.arange(100))
        tracemalloc.start()
        step(np.arange(100))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 20_000 * 64 * 8 / 10


def test_what_others_hold_keeps_its_numbers():
    with tg.use_backend("native"):
        table, step, _ = made()
        compiled = tg.compile(step)
        calls = list(given())
        for rows, factors in calls[:4]:
            compiled(rows, factors)
        held, gradient = table.data, table.grad
        before = held.copy(), gradient.copy()
        rows, factors = calls[4]
        compiled(rows, factors)
        np.testing.assert_array_equal(held, before[0])
        np.testing.assert_array_equal(gradient, before[1])
        assert not np.array_equal(table.data, before[0])


def test_a_gradient_does_not_change_with_the_arguments_it_came_from():
    with tg.use_backend("native"):
        table = tg.param(np.zeros(SHAPE))

        @tg.compile
        def step(rows, seed):
            table.grad = None
            tg.gather(table, rows).backward(seed)

        for _ in range(4):
            rows, seed = np.array([3, 1, 3]), np.arange(9.0).reshape(3, 3)
            step(rows, seed)
            rows[:], seed[:] = 0, -1.0
            want = np.zeros(SHAPE)
            want[1], want[3] = [3.0, 4.0, 5.0], [6.0, 8.0, 10.0]
            np.testing.assert_array_equal(table.grad, want)


def test_a_zero_that_meets_an_infinity_is_zero_by_rows_too():
    def run(compile):
        table = tg.param([[1.0], [0.0], [2.0]])
        optimizer = tg.SGD([table], lr=0.5)

        def step(rows, factors):
            optimizer.zero_grad()
            tg.sum(tg.sqrt(tg.gather(table, rows)) * factors).backward()
            optimizer.step()

        call = tg.compile(step) if compile else step
        for _ in range(4):  # the slope at zero is infinite, and its cotangent zero
            call(np.array([0, 1, 2, 1]), np.array([[0.01], [0.0], [0.01], [0.0]]))
            yield table.numpy(), table.grad.copy()

    with tg.use_backend("native"):
        for got, want in zip(run(True), run(False), strict=True):
            assert np.isfinite(got[0]).all() and np.isfinite(got[1]).all()
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.filterwarnings("ignore:clip_grad_norm")
def test_a_norm_that_is_none_makes_all_rows_nan_eagerly_and_compiled(bad):
    """As it does a gradient that is no table's: how one is held changes no number."""
    left = []
    for compiled in (False, True):
        table = tg.param(np.ones((4, 2)))
        optimizer = tg.SGD([table], lr=0.1)

        def step(rows, factors):
            optimizer.zero_grad()  # noqa: B023
            tg.sum(tg.gather(table, rows) * factors).backward()  # noqa: B023
            norm = tg.clip_grad_norm([table], 1.0)  # noqa: B023
            optimizer.step()  # noqa: B023
            return norm

        run = tg.compile(step) if compiled else step
        with tg.use_backend("native"):
            for _ in range(3):
                run(np.array([0, 2]), np.ones((2, 1)))
            finite = table.numpy()
            run(np.array([0, 2]), np.array([[1.0], [bad]]))
        left.append(finite)
        assert np.isnan(table.grad).all() and np.isnan(table.data).all()
    np.testing.assert_array_equal(*left)
    np.testing.assert_array_equal(left[0][[1, 3]], 1.0)
