"""NumPy's functions that rearrange, called on tensors: values, signatures and refusals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tapegraph as tg
from tapegraph.ops import shape

# The first whose np.pad takes a dict of axes.
NUMPY_2_3 = np.lib.NumpyVersion(np.__version__) >= "2.3.0"

X = np.arange(24.0).reshape(2, 3, 4)

CALLS = {
    "ravel": lambda x: np.ravel(x),
    "ravel-order": lambda x: np.ravel(x, order="F"),
    "reshape": lambda x: np.reshape(x, (4, -1)),
    "transpose": lambda x: np.transpose(x, (1, 2, 0)),
    "swapaxes": lambda x: np.swapaxes(x, axis1=0, axis2=2),
    "moveaxis": lambda x: np.moveaxis(x, source=[0, 2], destination=(1, 0)),
    "rollaxis": lambda x: np.rollaxis(x, 2, start=1),
    "squeeze": lambda x: np.squeeze(x[:1, :, :1], axis=(0, 2)),
    "expand_dims": lambda x: np.expand_dims(x, axis=(1, -1)),
    "permute_dims": lambda x: np.permute_dims(x, (2, 1, 0)),
    "matrix_transpose": lambda x: np.matrix_transpose(x),
    "broadcast_to": lambda x: np.broadcast_to(x[:1], shape=(2, 3, 4)),
    "atleast_1d": lambda x: np.atleast_1d(x[0, 0, 0]),
    "atleast_2d": lambda x: np.atleast_2d(x[0, 0]),
    "atleast_3d": lambda x: np.atleast_3d(x[0]),
    "concatenate": lambda x: np.concatenate([x, x], axis=2),
    "concatenate-flat": lambda x: np.concatenate((x, x[0]), axis=None),
    "concatenate-tensor": lambda x: np.concatenate(x),
    "concatenate-array": lambda x: np.concatenate([X, x]),
    "concat": lambda x: np.concat([x, x]),
    "stack": lambda x: np.stack([x, 2 * x], axis=-2),
    "stack-scalars": lambda x: np.stack([x[0, 0, 0], x[0, 0, 1]]),
    "vstack": lambda x: np.vstack([x[0], x[0, 0]]),
    "hstack": lambda x: np.hstack([x[0], x[1]]),
    "dstack": lambda x: np.dstack([x[0], x[1]]),
    "column_stack": lambda x: np.column_stack([x[0, 0], x[0, 1]]),
    "block": lambda x: np.block([[x[0], x[1]], [np.zeros((1, 4)), x[0, :1]]]),
    "block-deep": lambda x: np.block([x, x[..., :1]]),
    "append": lambda x: np.append(x, x[0]),
    "append-axis": lambda x: np.append(x, values=x, axis=1),
    "insert": lambda x: np.insert(x, 1, 5.0, axis=2),
    "insert-flat": lambda x: np.insert(x, [0, 3], 2.0 * x[0, 0, :2]),
    "delete": lambda x: np.delete(x, 1, axis=1),
    "delete-mask": lambda x: np.delete(x, [True, False], axis=0),
    "tile": lambda x: np.tile(x, reps=(2, 1, 1, 3)),
    "repeat": lambda x: np.repeat(x, repeats=2),
    "repeat-each": lambda x: np.repeat(x, np.array([2, 0, 1]), axis=1),
    "pad": lambda x: np.pad(x, 1),
    "pad-constants": lambda x: np.pad(x, ((0, 1), (2, 0), (1, 1)), constant_values=(7, 8)),
    **({"pad-dict": lambda x: np.pad(x, {-1: (1, 2)})} if NUMPY_2_3 else {}),
    "pad-edge": lambda x: np.pad(x, pad_width=(2, 1), mode="edge"),
    "pad-reflect": lambda x: np.pad(x, 3, "reflect"),
    "pad-symmetric": lambda x: np.pad(x, 3, mode="symmetric"),
    "pad-wrap": lambda x: np.pad(x, 5, mode="wrap"),
    "pad-nothing": lambda x: np.pad(x, 0, mode="wrap"),
    "roll": lambda x: np.roll(x, 5),
    "roll-axes": lambda x: np.roll(x, shift=(1, -1), axis=(0, 2)),
    "roll-around": lambda x: np.roll(x, 4, axis=2),
    "roll-same-axis": lambda x: np.roll(x, (1, 1), axis=(2, 2)),
    "flip": lambda x: np.flip(x, axis=(0, -1)),
    "fliplr": lambda x: np.fliplr(x),
    "flipud": lambda x: np.flipud(x),
    "rot90": lambda x: np.rot90(x, k=3, axes=(1, 2)),
    "rot90-not": lambda x: np.rot90(x, 4),
}
LISTS = {
    "split": lambda x: np.split(x, 3, axis=1),
    "split-at": lambda x: np.split(x, [1, 2], 2),
    "split-at-array": lambda x: np.split(x, np.array([3, 1]), -1),
    "array_split": lambda x: np.array_split(x, 3, axis=2),
    "hsplit": lambda x: np.hsplit(x, 3),
    "vsplit": lambda x: np.vsplit(x, [1]),
    "dsplit": lambda x: np.dsplit(x, 2),
    "broadcast_arrays": lambda x: np.broadcast_arrays(x, 1.0, np.ones((4, 1, 1, 1))),
    "atleast_1d": lambda x: np.atleast_1d(x, 3.0),
    "atleast_2d": lambda x: np.atleast_2d(3.0, x[0]),
}


def over(table):
    return pytest.mark.parametrize("call", table.values(), ids=table)


@over(CALLS)
def test_value_and_tape_are_those_of_numpy(call):
    for dtype in (np.float64, np.float32):
        out = call(tg.param(X.astype(dtype)))
        want = call(X.astype(dtype))
        assert isinstance(out, tg.Tensor) and out.requires_grad
        np.testing.assert_array_equal(out.numpy(), want, strict=True)


@over(CALLS)
def test_constants_stay_constants(call):
    out = call(tg.tensor(X))
    assert not out.requires_grad
    np.testing.assert_array_equal(out.numpy(), call(X))


@over(LISTS)
def test_lists_are_those_of_numpy(call):
    parts, want = call(tg.param(X)), call(X)
    assert type(parts) is type(want)
    for part, array in zip(parts, want, strict=True):
        np.testing.assert_array_equal(part.numpy(), array, strict=True)


REFUSED = {
    "ravel-order": (lambda x: np.ravel(x, "K"), "order 'K'"),
    "squeeze": (lambda x: np.squeeze(x, 0), r"axis 0 of shape \(2, 3, 4\)"),
    "expand_dims": (lambda x: np.expand_dims(x, 5), "axis 5"),
    "expand_dims-twice": (lambda x: np.expand_dims(x, (0, 0)), "at most once"),
    "swapaxes": (lambda x: np.swapaxes(x, 0, 3), "axis 3"),
    "moveaxis": (lambda x: np.moveaxis(x, (0, 1), 2), "as many places as axes"),
    "rollaxis": (lambda x: np.rollaxis(x, 3), "axis 3"),
    "matrix_transpose": (lambda x: np.matrix_transpose(x[0, 0]), "two axes"),
    "broadcast_to": (lambda x: np.broadcast_to(x, (3, 4)), r"\(2, 3, 4\).*\(3, 4\)"),
    "broadcast_to-negative": (lambda x: np.broadcast_to(x, (-1, 2, 3, 4)), "0 or more"),
    "broadcast_arrays": (lambda x: np.broadcast_arrays(x, X.T), "broadcast together"),
    "stack": (lambda x: np.stack([x, x[0]]), "equal shapes"),
    "vstack": (lambda x: np.vstack([x[0], x[0, 0, :2]]), "equal shapes"),
    "block": (lambda x: np.block([[x, x], x]), "equal depth"),
    "block-empty": (lambda x: np.block([[x], []]), "equal depth"),
    "split": (lambda x: np.split(x, 2, 1), "array_split"),
    "array_split": (lambda x: np.array_split(x, 0), "0 parts"),
    "hsplit": (lambda x: np.hsplit(x[0, 0, 0], 1), "at least 1 axes"),
    "vsplit": (lambda x: np.vsplit(x[0, 0], 1), "at least 2 axes"),
    "dsplit": (lambda x: np.dsplit(x[0], 1), "at least 3 axes"),
    "tile": (lambda x: np.tile(x, -1), "0 or more"),
    "repeat": (lambda x: np.repeat(x, [1, 2], 1), "3 of them"),
    "pad-mode": (lambda x: np.pad(x, 1, mode="mean"), "mode 'mean'"),
    "pad-odd": (lambda x: np.pad(x, 1, mode="reflect", reflect_type="odd"), "'odd'"),
    "pad-negative": (lambda x: np.pad(x, -1), "0 or more"),
    "pad-axes": (lambda x: np.pad(x, ((1, 1), (2, 2))), "3 axes"),
    "pad-empty": (lambda x: np.pad(x[:0], 1, mode="edge"), "empty axis 0"),
    "roll": (lambda x: np.roll(x, (1, 2, 3), (0, 1)), "as many shifts"),
    "flip": (lambda x: np.flip(x, 3), "axis 3"),
    "fliplr": (lambda x: np.fliplr(x[0, 0]), "at least 2 axes"),
    "rot90": (lambda x: np.rot90(x, 1, (0, 0)), "different axes"),
    "insert": (lambda x: np.insert(x, [1, 2], np.ones(3)), "broadcast_to"),
}


@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED)
def test_what_numpy_refuses_is_refused_with_a_message(call, message):
    x = tg.param(X)
    with pytest.raises(ValueError, match=message):
        call(x)
    if "order" not in message and "mode" not in message and "odd" not in message:
        with pytest.raises(ValueError):
            call(X)


def test_places_out_of_range_are_index_errors():
    x = tg.param(X)
    with pytest.raises(IndexError, match=r"delete: received places 9 of axis 1 of length 3"):
        np.delete(x, 9, axis=1)
    with pytest.raises(IndexError, match=r"insert: received places 9 of axis 1 of length 3"):
        np.insert(x, 9, 0.0, axis=1)


def test_numbers_of_other_types_are_type_errors():
    x = tg.param(X)
    with pytest.raises(TypeError, match=r"pad_width 1\.5"):
        np.pad(x, 1.5)
    with pytest.raises(TypeError, match="stack: received int 3"):
        shape.stack(3)
    with pytest.raises(TypeError, match="shift"):
        np.roll(x, 0.5)


def test_arguments_that_are_not_served_are_refused():
    x = tg.param(X)
    with pytest.raises(TypeError, match="Leave out= away"):
        np.stack([x, x], out=np.empty((2, 2, 3, 4)))
    with pytest.raises(TypeError, match="dtype="):
        np.vstack([x, x], dtype=np.float32)
    with pytest.raises(TypeError, match="dtype"):
        np.concatenate([x, x], dtype=np.float32)
    with pytest.raises(TypeError, match="constant_values|needs a gradient"):
        np.pad(x, 1, constant_values=x[0, 0, 0])


@given(st.data())
def test_pad_agrees_with_numpy(data):
    x = data.draw(hnp.arrays(np.float64, hnp.array_shapes(max_dims=3, max_side=4), unique=True))
    widths = [data.draw(st.tuples(*(st.integers(0, 6),) * 2)) for _ in range(x.ndim)]
    mode = data.draw(st.sampled_from(["constant", "edge", "reflect", "symmetric", "wrap"]))
    np.testing.assert_array_equal(
        np.pad(tg.param(x), widths, mode).numpy(), np.pad(x, widths, mode)
    )


@given(st.data())
def test_insert_agrees_with_numpy(data):
    x = np.arange(12.0).reshape(3, 4)
    axis = data.draw(st.sampled_from([None, 0, 1, -1]))
    length = 12 if axis is None else x.shape[axis]
    place = st.integers(-length, length)
    at = data.draw(st.one_of(place, st.lists(place, max_size=4)))
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=2, max_side=4))
    values = -1.0 - np.arange(float(np.prod(shape))).reshape(shape)
    try:
        want = np.insert(x, at, values, axis)
    except ValueError:
        with pytest.raises(ValueError):
            np.insert(tg.param(x), at, values, axis)
        return
    np.testing.assert_array_equal(np.insert(tg.param(x), at, values, axis).numpy(), want)
