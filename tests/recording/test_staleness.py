"""Changing what was recorded before backward: no effect on the gradient, or an error; never a
silently wrong number."""

from __future__ import annotations

import numpy as np
import pytest

import tapegraph as tg
from tests.quick import in_one

START = np.array([1.0, 2.0, 3.0])


def overwrite(array):
    array[...] = np.roll(array, 1) if array.size > 1 else array + 1


# -- the caller's own arrays -------------------------------------------------------------------

ROWS = np.arange(12.0).reshape(4, 3)


def cross_entropy(x, targets):
    return tg.softmax_crossentropy(x, targets)


# A recording of a leaf of shape (4, 3) and the caller's array, and that array.
RECORDINGS = {
    "add": (lambda x, a: x + a, ROWS),
    "mul": (lambda x, a: x * a, ROWS),
    "rmul": (lambda x, a: a * x, ROWS),
    "rdiv": (lambda x, a: a / (x + 1.0), ROWS),
    "pow": (lambda x, a: (x + 1.0) ** a, ROWS),
    "matmul": (lambda x, a: x @ a, ROWS.T),
    "rmatmul": (lambda x, a: a @ x, ROWS.T),
    "batch_matmul": (lambda x, a: a @ x, np.stack([ROWS.T, ROWS.T + 1.0])),
    "0-d": (lambda x, a: x * a, np.array(3.0)),
    "tensor": (lambda x, a: x * tg.tensor(a), ROWS),
    "gather": (lambda x, a: tg.gather(x * x, a), np.array([0, 1, 1])),
    "gather int32": (lambda x, a: tg.gather(x * x, a), np.array([0, -1], dtype=np.int32)),
    "integer index": (lambda x, a: (x * x)[a], np.array([0, 1, 1])),
    "mixed index": (lambda x, a: (x * x)[:, a], np.array([0, 2])),
    "boolean index": (lambda x, a: (x * x)[a], np.array([True, False, False, True])),
    "bool mask": (lambda x, a: tg.where(a, x * x, x), ROWS > 4),
    "float mask": (lambda x, a: tg.where(a, x * x, x), np.array([1.0, 0.0, 1.0])),
    "branch": (lambda x, a: tg.where(ROWS > 4, x, a) * x, ROWS),
    "concat": (lambda x, a: tg.concat([x, a]) ** 2, ROWS),
    "class targets": (cross_entropy, np.array([0, 1, 2, 0])),
    "one-hot targets": (cross_entropy, np.eye(4, 3)),
    "float32 targets": (cross_entropy, np.eye(4, 3, dtype=np.float32)),
    "regression targets": (lambda x, a: tg.mse_loss(x * x, a), ROWS),
    "float32 regression targets": (lambda x, a: tg.mse_loss(x * x, a), np.float32(ROWS)),
    "layer_norm gamma": (lambda x, a: tg.layer_norm(x, a, 0.0), np.array([1.0, 2.0, 3.0])),
    "kernel": (
        lambda x, a: tg.conv2d(x.reshape(1, 1, 4, 3), a),
        np.arange(4.0).reshape(1, 1, 2, 2),
    ),
    "image": (
        lambda x, a: tg.conv2d(a, x.reshape(1, 1, 4, 3)),
        np.arange(20.0).reshape(1, 1, 4, 5),
    ),
    "slice begin": (lambda x, a: tg.tensor_slice(x * x, a, (2, 2)), np.array([1, 0])),
    "new shape": (lambda x, a: (x * x).reshape(a) @ np.arange(6.0), np.array([2, 6])),
    "axes": (lambda x, a: tg.transpose(x, a) @ ROWS, np.array([1, 0])),
}


@in_one("name", RECORDINGS)
def test_callers_array_may_change_after_recording(name):
    record, given = RECORDINGS[name]
    expected = tg.param(np.sqrt(ROWS))
    tg.sum(record(expected, given.copy())).backward()

    array = given.copy()
    x = tg.param(np.sqrt(ROWS))
    y = tg.sum(record(x, array))
    overwrite(array)
    assert not np.array_equal(array, given)
    y.backward()
    np.testing.assert_array_equal(x.grad, expected.grad)


def test_callers_array_of_a_param_may_change():
    array = START.copy()
    x = tg.param(array)
    y = (x * x).sum()
    array[:] = 0.0
    y.backward()
    np.testing.assert_array_equal(x.grad, 2.0 * START)


def test_callers_lists_may_change():
    x, factors, rows = tg.param(START), [2.0, 3.0, 4.0], [0, 2]
    y = (x * factors)[rows].sum()
    factors[0] = 9.0
    rows[0] = 1
    y.backward()
    np.testing.assert_array_equal(x.grad, [2.0, 0.0, 4.0])


def test_assigned_array_may_change():
    x, array = tg.param(START), START + 1.0
    x.data = array
    y = (x * x).sum()
    array[:] = 0.0
    y.backward()
    np.testing.assert_array_equal(x.grad, 2.0 * (START + 1.0))


# -- writes to a leaf --------------------------------------------------------------------------


def subtract(x):
    x.data -= 1.0


def step(x):
    x.grad = np.ones(3)
    tg.SGD([x], lr=0.5).step()


def keep_a_view(x):
    view = x.data
    view[0] = 10.0


def swap(x):
    x.data[0], x.data[1] = x.data[1].copy(), x.data[0].copy()


def make_writeable(x):
    data = x.data
    data.flags.writeable = True
    data[0] = 10.0


WRITES = {
    "item": lambda x: x.data.__setitem__(0, 10.0),
    "everything": lambda x: x.data.__setitem__(..., 10.0),
    "slice": lambda x: x.data[1:].__setitem__(0, 10.0),
    "view of a view": lambda x: x.data[::-1][:2].reshape(2, 1).T.__setitem__(..., 10.0),
    "mask": lambda x: x.data.__setitem__(x.data > 1.0, 10.0),
    "augmented": subtract,
    "kept view": keep_a_view,
    "swap": swap,
    "made writeable": make_writeable,
    "out=": lambda x: np.add(x.data, 1.0, out=x.data),
    "positional out": lambda x: np.multiply(x.data, 2.0, x.data),
    "out= a part": lambda x: np.negative(x.data[:2], out=x.data[:2]),
    "out= of two": lambda x: np.modf(x.data + 0.5, out=(x.data, None)),
    "out= of a reduction": lambda x: np.add.reduce(np.ones((2, 3)), axis=0, out=x.data),
    "ufunc.at": lambda x: np.add.at(x.data, [0, 0], 1.0),
    "fill": lambda x: x.data.fill(10.0),
    "sort": lambda x: x.data[::-1].sort(),
    "copyto": lambda x: np.copyto(x.data, 10.0),
    "put": lambda x: np.put(x.data, [0], 10.0),
    "flat": lambda x: x.data.flat.__setitem__(0, 10.0),
    "place": lambda x: np.place(x.data, [True, False, False], 10.0),
    "clip": lambda x: np.clip(x.data, 2.0, 3.0, out=x.data),
    "asarray": lambda x: np.asarray(x.data).__setitem__(0, 10.0),
    "ndarray view": lambda x: x.data.view(np.ndarray).__setitem__(0, 10.0),
    "memoryview": lambda x: memoryview(x.data).__setitem__(0, 10.0),
    "assign": lambda x: x.assign([4.0, 5.0, 6.0]),
    "data =": lambda x: setattr(x, "data", [4.0, 5.0, 6.0]),
    "SGD.step": step,
}
# Refused by NumPy itself: the array is handed out read-only, so nothing is written.
REFUSED = {"copyto", "put", "flat", "place", "asarray", "ndarray view", "memoryview"}


def write(name, x):
    """Do a write, or see it refused; the leaf's number has changed exactly if it was not."""
    before = x.numpy()
    if name in REFUSED:
        with pytest.raises((ValueError, TypeError), match="read-only|cannot modify"):
            WRITES[name](x)
        np.testing.assert_array_equal(x.data, before)
    else:
        WRITES[name](x)
        assert not np.array_equal(x.data, before)


def backward_is_right_or_refused(y, leaf, name, x, expected):
    grad = None if x.grad is None else x.grad.copy()
    try:
        y.backward()
    except RuntimeError as error:
        assert f"'{leaf}'" in str(error)
        np.testing.assert_array_equal(x.grad, grad)
    else:
        assert name in REFUSED
        np.testing.assert_array_equal(x.grad, expected)


@in_one("name", WRITES)
def test_write_to_a_leaf_between_forward_and_backward(name):
    x = tg.param(START, name="weights")
    y = (x * x * x).sum()
    write(name, x)
    backward_is_right_or_refused(y, "weights", name, x, 3.0 * START**2)


@in_one("name", WRITES)
def test_forward_after_a_write_uses_the_new_numbers(name):
    x = tg.param(START)
    write(name, x)
    x.grad = None
    (x * x * x).sum().backward()
    np.testing.assert_array_equal(x.grad, 3.0 * x.data**2)


@in_one("name", sorted(set(WRITES) - {"SGD.step"}))
def test_write_to_a_constant_between_forward_and_backward(name):
    x, c = tg.param(START), tg.tensor(START)
    c.name = "targets"
    y = (x * c).sum()
    write(name, c)
    backward_is_right_or_refused(y, "targets", name, x, START)


@in_one(
    "view",
    [
        lambda x: x.reshape(3, 1),
        lambda x: x[::-1],
        lambda x: x[:2],
        lambda x: tg.tensor_slice(x, (0,), (2,)),
        lambda x: x.reshape(1, 3).T,
        lambda x: x.sum(axis=()),
    ],
)
@in_one("name", sorted(set(WRITES) - REFUSED))
def test_write_to_a_leaf_seen_through_a_recorded_view(view, name):
    x = tg.param(START, name="weights")
    v = view(x)
    write(name, x)
    y = (v * v).sum()
    with pytest.raises(RuntimeError, match="'weights' was changed"):
        y.backward()


@pytest.mark.parametrize("view", [lambda x: x.reshape(3, 1), lambda x: x[:2], lambda x: x + 0.0])
def test_results_cannot_be_written(view):
    x = tg.param(START)
    y = view(x)
    for change in (WRITES["everything"], WRITES["out="], WRITES["fill"], subtract):
        with pytest.raises(ValueError, match="the result .* is read-only"):
            change(y)
    np.testing.assert_array_equal(x.data, START)


def test_cleared_view_cannot_write_through_to_its_leaf():
    x = tg.param(START)
    v = x[:2]
    tg.tape_reset()
    y = (x * x).sum()
    with pytest.raises(ValueError, match="data"):
        v.data[0] = 9.0
    y.backward()
    np.testing.assert_array_equal(x.grad, 2.0 * START)


def test_array_from_before_an_assignment_is_no_longer_the_leaf():
    x = tg.param(START)
    old = x.data
    x.assign(START + 1.0)
    y = (x * x).sum()
    with pytest.raises(ValueError, match="no longer that of"):
        old[0] = 9.0
    y.backward()
    np.testing.assert_array_equal(x.grad, 2.0 * (START + 1.0))


# -- what is cut off from the leaf stays so ----------------------------------------------------


@in_one("name", sorted(set(WRITES) - REFUSED))
@in_one(
    "cut",
    [
        lambda x: x.detach(),
        lambda x: tg.tensor(x.detach()),
        lambda x: x.data.copy(),
        lambda x: x.numpy(),
        lambda x: tg.no_grad(lambda: x.reshape(3, 1).T[0])(),
        lambda x: tg.no_grad(lambda: x[:])(),
        lambda x: x.detach().reshape(1, 3)[0],
    ],
)
def test_detached_values_do_not_follow_the_leaf(cut, name):
    x, w = tg.param(START), tg.param(START)
    c = cut(x)
    y = (w * c).sum()
    write(name, x)
    y.backward()
    np.testing.assert_array_equal(w.grad, START)


@pytest.mark.parametrize("cut", [lambda x: x.detach(), lambda x: tg.no_grad(lambda: x[:2])()])
def test_writing_to_a_detached_value_leaves_the_leaf(cut):
    x = tg.param(START)
    y = (x * x).sum()
    cut(x).data[...] = 9.0
    y.backward()
    np.testing.assert_array_equal(x.grad, 2.0 * START)


@pytest.mark.parametrize("cond", [tg.tensor([1.0, 0.0, 1.0]), tg.param([1.0, 0.0, 1.0])])
def test_condition_tensor_is_read_when_recorded(cond):
    x = tg.param(START)
    y = tg.where(cond, x, 0.0).sum()
    cond.assign([0.0, 1.0, 0.0])
    y.backward()
    np.testing.assert_array_equal(x.grad, [1.0, 0.0, 1.0])
    cond.assign([1.0, 0.0, 1.0])


def test_index_and_class_tensors_are_read_when_recorded():
    x, rows, classes = tg.param(ROWS), tg.tensor([1, 2]), tg.tensor([0, 1, 2, 0])
    expected = tg.param(ROWS)
    (tg.gather(expected, [1, 2]).sum() + cross_entropy(expected, [0, 1, 2, 0])).backward()
    y = tg.gather(x, rows).sum() + cross_entropy(x, classes)
    rows.data[...] = 0
    classes.data[...] = 1
    y.backward()
    np.testing.assert_array_equal(x.grad, expected.grad)


def test_training_without_a_fresh_forward_is_refused():
    x = tg.param(START, name="x")
    y = (x * x).sum()
    optimizer = tg.SGD([x], lr=0.1)
    y.backward()
    optimizer.step()
    with pytest.raises(RuntimeError, match="'x' was changed after the mul"):
        y.backward()


def test_unrelated_writes_do_not_disturb():
    x, other = tg.param(START), tg.param(START)
    y = (x * x).sum()
    other.data[...] = 0.0
    y.backward()
    np.testing.assert_array_equal(x.grad, 2.0 * START)


def test_changing_a_gradient_does_not_change_another():
    a, b = tg.param(START), tg.param(START)
    y = tg.sum(a + b)
    y.backward()
    a.grad *= 5.0
    np.testing.assert_array_equal(b.grad, np.ones(3))
    y.backward()
    np.testing.assert_array_equal(a.grad, np.full(3, 6.0))
