"""NumPy's functions of shapes and joins, called on tensors: values, signatures and refusals."""

from __future__ import annotations

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.ops import shape

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
    "tile": lambda x: np.tile(x, reps=(2, 1, 1, 3)),
}
LISTS = {
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
    "ravel-order": (lambda x: np.ravel(x, "K"), "order='K'; expected 'C' or 'F'"),
    "squeeze": (lambda x: np.squeeze(x, 0), r"axis 0 of shape \(2, 3, 4\)"),
    "expand_dims": (lambda x: np.expand_dims(x, 5), "axis 5"),
    "expand_dims-twice": (lambda x: np.expand_dims(x, (0, 0)), "at most once"),
    "swapaxes": (lambda x: np.swapaxes(x, 0, 3), "axis 3"),
    "moveaxis": (lambda x: np.moveaxis(x, (0, 1), 2), "as many destinations as sources"),
    "rollaxis": (lambda x: np.rollaxis(x, 3), "axis 3"),
    "matrix_transpose": (lambda x: np.matrix_transpose(x[0, 0]), "two axes"),
    "broadcast_to": (lambda x: np.broadcast_to(x, (3, 4)), r"\(2, 3, 4\).*\(3, 4\)"),
    "broadcast_to-negative": (lambda x: np.broadcast_to(x, (-1, 2, 3, 4)), "0 or more"),
    "broadcast_arrays": (lambda x: np.broadcast_arrays(x, X.T), "broadcast together"),
    "stack": (lambda x: np.stack([x, x[0]]), "equal shapes"),
    "vstack": (lambda x: np.vstack([x[0], x[0, 0, :2]]), "equal shapes"),
    "block": (lambda x: np.block([[x, x], x]), "equal depth"),
    "block-empty": (lambda x: np.block([[x], []]), "equal depth"),
    "tile": (lambda x: np.tile(x, -1), "0 or more"),
}


@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED)
def test_what_numpy_refuses_is_refused_with_a_message(call, message):
    x = tg.param(X)
    with pytest.raises(ValueError, match=message):
        call(x)
    if "order" not in message:
        with pytest.raises(ValueError):
            call(X)


def test_numbers_of_other_types_are_type_errors():
    with pytest.raises(TypeError, match="stack: received int 3"):
        shape.stack(3)


def test_arguments_that_are_not_served_are_refused():
    x = tg.param(X)
    with pytest.raises(TypeError, match="Leave it out"):
        np.stack([x, x], out=np.empty((2, 2, 3, 4)))
    with pytest.raises(TypeError, match="dtype="):
        np.vstack([x, x], dtype=np.float32)
    with pytest.raises(TypeError, match="dtype"):
        np.concatenate([x, x], dtype=np.float32)


def test_an_axis_out_of_range_is_numpys_error():
    for error in (np.exceptions.AxisError, IndexError, ValueError):
        with pytest.raises(error, match=r"sum: received axis 2; expected an axis in \[-2, 2\)"):
            np.sum(tg.param(np.ones((2, 2))), axis=2)
