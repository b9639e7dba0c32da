"""Row-sparse gradients: a gathered table pays for the rows it was read at."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.row_sparse import RowSparse, has_nan

ROWS = np.array([3, 1, 3, 0, 1, 3])


def dense(rows, values, shape):
    """Add row by row."""
    table = np.zeros(shape)
    for row, value in zip(rows, values, strict=True):
        table[row] += value
    return table


@pytest.fixture
def values():
    return np.random.default_rng(0).normal(size=(6, 2))


def test_dense_adds_repeated_rows(values):
    np.testing.assert_allclose(
        RowSparse(ROWS, values, (5, 2)).dense(), dense(ROWS, values, (5, 2)), rtol=1e-15
    )


@pytest.mark.parametrize("kept", [0, 1 << 20], ids=["large-table", "small-table"])
@pytest.mark.parametrize("distinct", [1, 3, 40, 1000])
def test_rows_repeated_seldom_often_and_always(kept, distinct, monkeypatch):
    monkeypatch.setattr("tapegraph.row_sparse.MAX_KEPT_BYTES", kept)
    rng = np.random.default_rng(distinct)
    rows, numbers = rng.integers(0, distinct, 60), rng.normal(size=(60, 2))
    table = rng.normal(size=(1000, 2))
    want = table + dense(rows, numbers * -0.5, table.shape)
    places, moved = RowSparse(rows, numbers, table.shape).moved(table, -0.5)
    table[places] = moved
    np.testing.assert_allclose(table, want, rtol=1e-13, atol=1e-14)


def test_no_rows_is_zero():
    empty = RowSparse(np.zeros(0, np.int64), np.zeros((0, 2)), (5, 2))
    np.testing.assert_array_equal(empty.dense(), np.zeros((5, 2)))


def test_sums_with_sparse_and_dense_on_either_side(values):
    sparse, table = RowSparse(ROWS, values, (9, 2)), np.ones((9, 2))
    want = dense(ROWS, values, (9, 2))
    np.testing.assert_allclose((table + sparse), 1 + want, rtol=1e-15)
    np.testing.assert_allclose((sparse + table), 1 + want, rtol=1e-15)
    joined = sparse + sparse
    np.testing.assert_allclose(np.asarray(joined), 2 * want, rtol=1e-15)
    np.testing.assert_array_equal(table, np.ones((9, 2)))


def test_more_rows_than_the_table_become_dense(values):
    sparse = RowSparse(ROWS, values, (9, 2))
    assert isinstance(sparse + sparse, np.ndarray)


def test_gather_of_a_leaf_stays_sparse_until_it_is_read(backend, values):
    table = tg.param(np.ones((9, 2)))
    tg.sum(tg.gather(table, ROWS) * values).backward()
    assert isinstance(table._grad, RowSparse)
    np.testing.assert_allclose(table.grad, dense(ROWS, values, (9, 2)), rtol=1e-14)
    assert type(table.grad) is np.ndarray


@pytest.mark.parametrize("index", [ROWS, ROWS.reshape(2, 3), ROWS[:0], np.int64(2), [-1, 0]])
def test_every_index_shape(backend, index):
    table = tg.param(np.arange(18.0).reshape(9, 2))
    tg.sum(tg.gather(table, index) ** 2).backward()
    flat = np.asarray(index, dtype=np.int64).ravel()
    np.testing.assert_allclose(table.grad, dense(flat, 2 * table.data[flat], (9, 2)))


def test_a_compiled_step_adds_up_more_rows_than_the_table_as_an_eager_one():
    def make():
        table = tg.param(np.ones((3, 2), np.float32))
        optimizer = tg.SGD([table], lr=0.1)

        def step(rows, factors):
            optimizer.zero_grad()
            tg.sum(tg.gather(table, rows) * factors).backward()
            optimizer.step()

        return step, table

    rng = np.random.default_rng(0)
    with tg.use_backend("native"):
        (eager, table), (step, other) = make(), make()
        compiled = tg.compile(step)
        for _ in range(6):
            rows, factors = rng.integers(3, size=8), rng.normal(size=(8, 2)).astype(np.float32)
            eager(rows, factors)
            compiled(rows, factors)
            assert isinstance(table._grad, np.ndarray)
            np.testing.assert_array_equal(other.data, table.data)


def test_sparse_and_dense_readers_of_one_leaf(backend, values):
    table = tg.param(np.ones((9, 2)))
    (tg.sum(tg.gather(table, ROWS) * values) + tg.sum(table * 3.0)).backward()
    np.testing.assert_allclose(table.grad, 3 + dense(ROWS, values, (9, 2)), rtol=1e-14)


def test_gather_of_a_result_is_dense(backend):
    x = tg.param(np.ones((9, 2)))
    tg.sum(tg.gather(x * 2.0, ROWS)).backward()
    np.testing.assert_allclose(x.grad, dense(ROWS, np.full((6, 2), 2.0), (9, 2)))


def test_backwards_add_up(backend, values):
    table = tg.param(np.ones((9, 2)))
    for _ in range(3):
        tg.sum(tg.gather(table, ROWS) * values).backward()
    np.testing.assert_allclose(table.grad, 3 * dense(ROWS, values, (9, 2)), rtol=1e-14)
    table.zero_grad()
    np.testing.assert_array_equal(table.grad, np.zeros((9, 2)))


def test_sgd_updates_touched_rows_as_the_dense_step_would(backend, values):
    table = tg.param(np.ones((9, 2)))
    before = table.data
    tg.sum(tg.gather(table, ROWS) * values).backward()
    tg.SGD([table], lr=0.5).step()
    np.testing.assert_allclose(table.data, 1 - 0.5 * dense(ROWS, values, (9, 2)), rtol=1e-14)
    np.testing.assert_array_equal(before, np.ones((9, 2)))  # who held the array keeps it


def test_a_step_needs_memory_for_the_rows_only():
    tg.set_backend("native")
    table = tg.param(np.zeros((20_000, 64)))
    optimizer = tg.SGD([table], lr=0.1)
    ids = np.arange(100)

    def step():
        optimizer.zero_grad()
        tg.sum(tg.gather(table, ids) ** 2).backward()
        optimizer.step()

    step()
    tracemalloc.start()
    step()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < table.data.nbytes / 10


def test_retained_results_are_arrays(backend):
    x = tg.param(np.ones((9, 2)))
    middle = x * 2.0
    middle.retain_grad()
    tg.sum(tg.gather(middle, ROWS)).backward()
    np.testing.assert_array_equal(middle.grad, dense(ROWS, np.ones((6, 2)), (9, 2)))


@pytest.mark.parametrize("shape", [(3, 4), (0, 4), (3, 0)], ids=str)
def test_a_nan_is_found_among_numbers_that_repeat(shape):
    for thin in (np.zeros(()), np.zeros((shape[0], 1)), np.zeros((1, shape[1]))):
        assert not has_nan(np.broadcast_to(thin, shape))
        thin[...] = np.nan
        assert has_nan(np.broadcast_to(thin, shape)) == bool(np.isnan(np.full(shape, np.nan)).any())
