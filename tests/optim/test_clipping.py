"""Clipping gradients, against NumPy and PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.row_sparse import RowSparse


def params(*grads, dtype=np.float64):
    """Parameters with these gradients."""
    made = []
    for grad in grads:
        p = tg.param(np.zeros(np.shape(grad)), dtype=dtype)
        p.grad = grad
        made.append(p)
    return made


GRADS = [np.array([[1.0, -2.0], [3.0, 4.0]]), np.array([-0.5, 0.25]), np.array(2.0)]
NORM = np.sqrt(1 + 4 + 9 + 16 + 0.25 + 0.0625 + 4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("max_norm", [0.0, 0.5, 5.0, 10.0, np.inf])
def test_norm_and_scaled_gradients(max_norm, dtype):
    leaves = params(*GRADS, dtype=dtype)
    norm = tg.clip_grad_norm(leaves, max_norm)
    assert norm.item() == pytest.approx(NORM, rel=1e-14)
    assert (norm.shape, norm.dtype, norm.requires_grad) == ((), np.float64, False)
    factor = min(1.0, max_norm / (NORM + 1e-6))
    for p, g in zip(leaves, GRADS, strict=True):
        assert (type(p.grad), p.grad.dtype) == (np.ndarray, dtype)
        np.testing.assert_allclose(p.grad, g * factor, rtol=1e-14 if dtype is np.float64 else 3e-7)


@pytest.mark.parametrize("max_norm", [0.5, 10.0])
def test_pytorchs(max_norm):
    torch = pytest.importorskip("torch")
    theirs = [torch.zeros(g.shape, dtype=torch.float64) for g in GRADS]
    for t, g in zip(theirs, GRADS, strict=True):
        t.grad = torch.tensor(g)
    leaves = params(*GRADS)
    want = torch.nn.utils.clip_grad_norm_(theirs, max_norm)
    assert tg.clip_grad_norm(leaves, max_norm).item() == pytest.approx(want.item(), rel=1e-14)
    for p, t in zip(leaves, theirs, strict=True):
        np.testing.assert_allclose(p.grad, t.grad.numpy(), rtol=1e-14)


@pytest.mark.parametrize("size", [1e-300, 1e-200, 1e-20, 1e200, 1e307])
def test_huge_and_tiny_gradients_have_their_norm(size):
    leaves = params(np.array([3.0, 0.0]) * size, np.array([-4.0]) * size)
    norm = tg.clip_grad_norm(leaves, size)
    assert norm.item() == pytest.approx(5.0 * size, rel=1e-14)
    if size > 1.0:
        np.testing.assert_allclose(leaves[0].grad, [0.6 * size, 0.0], rtol=1e-13)


def test_squares_of_float32_do_not_overflow():
    leaves = params([3e30, 4e30], dtype=np.float32)
    assert tg.clip_grad_norm(leaves, 1.0).item() == pytest.approx(5e30, rel=1e-7)
    np.testing.assert_allclose(leaves[0].grad, [0.6, 0.8], rtol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_norm_that_is_none_is_said_and_makes_every_gradient_nan(bad):
    a, b = params([1.0, 2.0], [3.0, bad])
    b.name = "b"
    with pytest.warns(RuntimeWarning, match="clip_grad_norm: .* parameter 'b'") as caught:
        norm = tg.clip_grad_norm([a, b], 1.0)
    assert caught[0].filename == __file__
    np.testing.assert_equal(norm.item(), abs(bad))
    assert np.isnan(a.grad).all() and np.isnan(b.grad).all()


def test_where_that_warning_is_an_error_the_gradients_stay():
    a, b = params([1.0, 2.0], [3.0, np.inf])
    with pytest.raises(RuntimeWarning):
        tg.clip_grad_norm([a, b], 1.0)
    np.testing.assert_array_equal(a.grad, [1.0, 2.0])
    np.testing.assert_array_equal(b.grad, [3.0, np.inf])


def test_without_gradients_the_norm_is_zero():
    unused, zeroed, empty = tg.param([1.0]), *params([1.0]), *params(np.zeros((0, 3)))[:1]
    zeroed.zero_grad()
    assert tg.clip_grad_norm([unused, zeroed, empty], 0.5).item() == 0.0
    assert tg.clip_grad_norm([], 0.5).item() == 0.0
    assert unused.grad is None


def test_values_and_tensors_together():
    v, x = tg.Value(0.0), tg.param([0.0])
    v.grad, x.grad = 3.0, [4.0]
    assert tg.clip_grad_norm({"v": v, "x": x}, 1.0).item() == 5.0
    assert isinstance(v.grad, float)
    assert v.grad == pytest.approx(0.6, rel=1e-6)
    assert x.grad[0] == pytest.approx(0.8, rel=1e-6)


def gathered(rows, values):
    table = tg.param(np.zeros((6, 2)))
    tg.sum(tg.gather(table, rows) * values).backward()
    return table


def test_rows_stay_rows_and_repeated_ones_count_once():
    rows, values = np.array([4, 1, 4]), np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    table = gathered(rows, values)
    dense = np.zeros((6, 2))
    np.add.at(dense, rows, values)
    assert tg.clip_grad_norm([table], 1.0).item() == pytest.approx(np.linalg.norm(dense))
    assert isinstance(table._grad, RowSparse)
    np.testing.assert_allclose(table.grad, dense / np.linalg.norm(dense), rtol=1e-6)

    table = gathered(rows, values)
    tg.clip_grad_value([table], 5.0)
    assert isinstance(table._grad, RowSparse)
    np.testing.assert_array_equal(table.grad, np.minimum(dense, 5.0))


def test_a_table_of_which_no_row_was_read():
    table = gathered(np.zeros(0, np.int64), np.zeros((0, 2)))
    assert tg.clip_grad_norm([table], 1.0).item() == 0.0
    tg.clip_grad_value([table], 1.0)
    np.testing.assert_array_equal(table.grad, np.zeros((6, 2)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_are_limited(dtype):
    grad = np.array([-3.0, -1.0, 0.5, 7.0, np.inf, -np.inf, np.nan])
    (x,) = params(grad, dtype=dtype)
    tg.clip_grad_value([x], 2)
    assert x.grad.dtype == dtype
    np.testing.assert_array_equal(x.grad, np.clip(grad, -2.0, 2.0).astype(dtype))


def test_arrays_handed_out_before_keep_their_numbers_and_backward_adds_to_the_new_ones():
    x = tg.param([3.0, 4.0])
    (x * x).sum().backward()
    held = x.grad
    tg.clip_grad_norm([x], 5.0)
    np.testing.assert_array_equal(held, [6.0, 8.0])
    clipped = x.grad.copy()
    x.sum().backward()
    np.testing.assert_array_equal(x.grad, clipped + 1.0)


@pytest.mark.parametrize("clip", [tg.clip_grad_norm, tg.clip_grad_value])
@pytest.mark.parametrize("limit", [-1.0, np.nan, "a", None])
def test_limits_that_are_none_are_refused(clip, limit):
    kind = TypeError if limit in ("a", None) else ValueError
    with pytest.raises(kind, match=f"{clip.__name__}: received"):
        clip(params([1.0]), limit)


@pytest.mark.parametrize("clip", [tg.clip_grad_norm, tg.clip_grad_value])
def test_what_are_no_parameters_is_refused(clip):
    (x,) = params([1.0])
    for given, message in (
        (x, r"Write \[w\]"),
        ([tg.tensor(1.0)], "tg.param"),
        ([x * 1.0], "tg.param"),
        (None, "a list of parameters"),
    ):
        with pytest.raises(TypeError, match=f"{clip.__name__}: .*{message}"):
            clip(given, 1.0)
    with pytest.raises(ValueError, match="more than once"):
        clip([x, x], 1.0)
