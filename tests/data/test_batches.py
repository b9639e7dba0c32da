"""Batches and epochs: every row once, in an order that a seed repeats, read as it is needed."""

from __future__ import annotations

import pickle
import tracemalloc

import numpy as np
import pytest

import tapegraph as tg
from tests.quick import in_one

X = np.arange(20.0).reshape(10, 2)
Y = np.arange(10)


def rows_of(batches):
    return np.concatenate(list(batches))


# ------------------------------------------------------------------ what a loop is given


@pytest.mark.parametrize(("size", "lengths"), [(5, [5, 5]), (4, [4, 4, 2]), (99, [10])])
def test_in_order_the_batches_are_the_arrays_parts(size, lengths):
    batches = tg.data.batches(X, Y, size=size)
    found = list(batches)
    assert len(batches) == len(found)
    assert [len(x) for x, _ in found] == [len(y) for _, y in found] == lengths
    np.testing.assert_array_equal(np.concatenate([x for x, _ in found]), X)
    np.testing.assert_array_equal(np.concatenate([y for _, y in found]), Y)


@pytest.mark.parametrize("size", [1, 3, 5, 10])
def test_shuffled_every_row_comes_once_in_each_loop_and_rows_stay_together(size):
    batches = tg.data.batches(X, Y, size=size, shuffle=True, rng=0)
    for _ in range(3):
        found = list(batches)
        labels = np.concatenate([y for _, y in found])
        assert sorted(labels) == list(Y)
        np.testing.assert_array_equal(np.concatenate([x for x, _ in found]), X[labels])


def test_drop_last_leaves_out_the_short_batch():
    batches = tg.data.batches(Y, size=4, drop_last=True)
    assert [list(batch) for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert len(batches) == len(batches.epoch()) == 2


def test_which_rows_are_dropped_changes_where_they_are_shuffled():
    batches = tg.data.batches(Y, size=4, shuffle=True, rng=0, drop_last=True)
    seen = {int(label) for _ in range(20) for label in rows_of(batches)}
    assert seen == set(Y)


def test_trees_lists_and_tensors_are_batched_leaf_by_leaf():
    tree = {"image": X, "more": (Y, [0.5] * 10)}
    with pytest.raises((TypeError, ValueError)):
        tg.data.batches({"image": X, "n": 3}, size=5)
    del tree["more"]
    tree["labels"] = (Y, tg.tensor(Y * 0.5))
    (first, second) = tg.data.batches(tree, size=5)
    np.testing.assert_array_equal(first["image"], X[:5])
    np.testing.assert_array_equal(second["labels"][0], Y[5:])
    np.testing.assert_array_equal(second["labels"][1], Y[5:] * 0.5)
    assert isinstance(second["labels"], tuple)


# ------------------------------------------------------------------ orders


def test_an_int_seed_repeats_the_orders_and_loops_differ():
    first, again = (tg.data.batches(Y, size=3, shuffle=True, rng=7) for _ in range(2))
    orders = [rows_of(first) for _ in range(3)]
    for order in orders:
        np.testing.assert_array_equal(rows_of(again), order)
    assert len({tuple(order) for order in orders}) == 3
    other = rows_of(tg.data.batches(Y, size=3, shuffle=True, rng=8))
    assert not np.array_equal(other, orders[0])


def test_the_order_is_numpys_own_permutation():
    rng = np.random.default_rng(3)
    batches = tg.data.batches(Y, size=3, shuffle=True, rng=np.random.default_rng(3))
    for _ in range(2):
        np.testing.assert_array_equal(rows_of(batches), rng.permutation(10))


def test_a_generator_is_shared_and_goes_on():
    rng = np.random.default_rng(3)
    first = rows_of(tg.data.batches(Y, size=3, shuffle=True, rng=rng))
    assert not np.array_equal(rows_of(tg.data.batches(Y, size=3, shuffle=True, rng=rng)), first)


def test_without_a_generator_tapegraphs_seed_decides():
    orders = []
    for seed in (5, 5, 6):
        tg.random.seed(seed)
        orders.append(rows_of(tg.data.batches(Y, size=3, shuffle=True)))
    np.testing.assert_array_equal(orders[0], orders[1])
    assert not np.array_equal(orders[0], orders[2])


def test_without_shuffle_nothing_is_drawn():
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state, tg.random.get_state()
    rows_of(tg.data.batches(Y, size=3, rng=rng))
    rows_of(tg.data.batches(Y, size=3))
    assert (rng.bit_generator.state, tg.random.get_state()) == before


def test_an_epoch_is_one_pass_that_can_be_gone_over_again():
    epoch = tg.data.epoch(Y, size=3, shuffle=True, rng=0)
    first = rows_of(epoch)
    np.testing.assert_array_equal(rows_of(epoch), first)
    assert sorted(first) == list(Y)


def test_two_loops_at_once_do_not_disturb_each_other():
    batches = tg.data.batches(Y, size=3, shuffle=True, rng=0)
    pairs = list(zip(batches, batches, strict=True))
    for side in range(2):
        assert sorted(np.concatenate([pair[side] for pair in pairs])) == list(Y)


def test_an_epoch_and_a_seeded_loader_go_through_pickle():
    epoch = tg.data.epoch(X, Y, size=3, shuffle=True, rng=0)
    for (x, y), (its_x, its_y) in zip(epoch, pickle.loads(pickle.dumps(epoch)), strict=True):
        np.testing.assert_array_equal(x, its_x)
        np.testing.assert_array_equal(y, its_y)
    for options in ({}, {"shuffle": True, "rng": 0}, {"shuffle": True}):
        batches = tg.data.batches(Y, size=3, **options)
        rows_of(batches)
        tg.random.seed(0)
        copy = pickle.loads(pickle.dumps(batches))
        want = rows_of(batches)
        tg.random.seed(0)
        np.testing.assert_array_equal(rows_of(copy), want)


# ------------------------------------------------------------------ memory


def test_in_order_nothing_is_copied():
    for batch in tg.data.batches(X, size=4):
        assert np.shares_memory(batch, X)
    (rows,) = tg.data.epoch(X, size=4).trees
    assert np.shares_memory(rows.block(0, 2), X)
    assert rows.block(0, 2).shape == (2, 4, 2)


def test_shuffled_batches_are_copies():
    (batch,) = tg.data.batches(X, size=10, shuffle=True, rng=0)
    batch[:] = -1.0
    assert (X >= 0).all()


@pytest.mark.parametrize("shuffle", [False, True])
def test_an_array_on_disk_is_read_batch_by_batch(shuffle, tmp_path):
    rows, width = 1 << 12, 1 << 16  # 2 GB, of a file that has holes
    on_disk = np.memmap(tmp_path / "rows", np.float64, "w+", shape=(rows, width))
    step = tg.compile(lambda x: np.sum(x))
    with tg.use_backend("native"):
        step.scan(np.ones((3, 1)))  # a first plan asks for memory to keep, once a process
    tracemalloc.start()
    try:
        batches = tg.data.batches(on_disk, size=2, shuffle=shuffle, rng=0)
        for _, batch in zip(range(5), batches, strict=False):
            assert batch.shape == (2, width)
            assert not batch.any()
        part = tg.data.epoch(on_disk[:64], size=2, shuffle=shuffle, rng=0)
        with tg.use_backend("native"):
            assert not step.scan(part).data.any()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 16e6  # where the part alone is 34 MB


# ------------------------------------------------------------------ epochs by scan


def counting():
    """Return a step that adds up what it sees, weighted by its length."""
    total = tg.tensor(0.0)

    @tg.compile
    def step(x, y):
        total.assign(total + np.sum(x) * len(y))
        return np.sum(y)

    return step, total


@pytest.mark.parametrize("engine", ["native", "tensorflow"])
@pytest.mark.parametrize("drop_last", [False, True])
def test_a_scan_runs_the_short_batch_apart_or_drops_it(engine, drop_last):
    if engine == "tensorflow":
        pytest.importorskip("tensorflow")
    x = np.random.default_rng(0).normal(size=(38, 3))
    y = np.arange(38)
    options = {"size": 4, "shuffle": True, "drop_last": drop_last}
    step, total = counting()
    with tg.use_backend(engine):
        sums = step.scan(tg.data.epoch(x, y, rng=0, **options))
    found = list(tg.data.epoch(x, y, rng=0, **options))
    assert len(found) == len(sums) == (9 if drop_last else 10)
    np.testing.assert_array_equal(sums.data, [labels.sum() for _, labels in found])
    assert total.item() == pytest.approx(sum(a.sum() * len(b) for a, b in found), rel=1e-9)
    assert step.traces == (1 if drop_last else 2)


def test_a_scan_of_batches_takes_the_next_pass():
    batches = tg.data.batches(X, Y, size=5, shuffle=True, rng=0)
    again = tg.data.batches(X, Y, size=5, shuffle=True, rng=0)
    step, _ = counting()
    for _ in range(3):
        want = [labels.sum() for _, labels in again]
        np.testing.assert_array_equal(step.scan(batches).data, want)


# ------------------------------------------------------------------ what is refused


@in_one(
    ("arrays", "options", "error", "message"),
    [
        ((), {"size": 1}, ValueError, "no arrays"),
        ((X, Y[:9]), {"size": 2}, ValueError, r"\[10, 9\] rows"),
        ((X,), {"size": 0}, ValueError, "size=0"),
        ((X,), {"size": -3}, ValueError, "size=-3"),
        ((X,), {"size": 2.5}, TypeError, "float 2.5 for 'size'"),
        ((X[:0],), {"size": 2}, ValueError, "0 rows"),
        ((X,), {"size": 11, "drop_last": True}, ValueError, "10 rows for batches of 11"),
        ((1.5,), {"size": 2}, TypeError, "an array with rows"),
        ((np.array([None, "a"]),), {"size": 1}, TypeError, "an array with rows"),
        ((X,), {"size": 2, "shuffle": True, "rng": "seed"}, TypeError, "str 'seed' for 'rng'"),
        ((X,), {"size": 2, "shuffle": True, "rng": -1}, ValueError, "rng=-1"),
        ((X,), {"size": 2, "shuffle": True, "rng": 0.5}, TypeError, "float 0.5 for 'rng'"),
    ],
)
@in_one("make", [tg.data.batches, tg.data.epoch])
def test_what_is_no_data_is_refused_at_once(make, arrays, options, error, message):
    with pytest.raises(error, match=message):
        make(*arrays, **options)


def test_a_tensor_that_needs_a_gradient_is_refused():
    with pytest.raises(TypeError, match=r"tensor\.detach\(\)"):
        tg.data.batches(tg.param(X), size=2)
