"""NumPy's arrays like another, copies and conversions, on tensors."""

from __future__ import annotations

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.ops import elementwise

X = np.array([[1.5, -2.5, 0.5], [3.0, 4.49, -0.51]])


@pytest.mark.parametrize("function", [np.zeros_like, np.ones_like, np.empty_like])
@pytest.mark.parametrize(
    "options", [{}, {"dtype": np.float32}, {"dtype": int}, {"shape": (2,)}, {"shape": 3}], ids=str
)
def test_likes(function, options):
    out, want = function(tg.param(X), **options), function(X, **options)
    assert isinstance(out, tg.Tensor) and not out.requires_grad
    assert (out.shape, out.dtype) == (want.shape, want.dtype)
    if function is not np.empty_like:
        np.testing.assert_array_equal(out.numpy(), want)
    assert function(tg.param(X.astype(np.float32))).dtype == np.float32


@pytest.mark.parametrize("fill", [2.5, 3, [1.0, 2.0, 3.0], np.float32(0.5), np.ones((2, 1))])
def test_full_like(fill):
    for options in ({}, {"dtype": np.float32}, {"dtype": int}):
        out = np.full_like(tg.param(X), fill, **options)
        assert not out.requires_grad
        np.testing.assert_array_equal(out.numpy(), np.full_like(X, fill, **options), strict=True)


def test_full_like_of_a_tensor_differentiates():
    fill = tg.param([1.0, 2.0, 3.0])
    np.full_like(tg.param(X), fill).backward()
    assert fill.grad.tolist() == [2.0, 2.0, 2.0]
    low = np.full_like(tg.param(X.astype(np.float32)), fill)
    assert low.dtype == np.float32 and low.requires_grad
    assert np.full_like(tg.param(X), fill, dtype=int).data.tolist() == [[1, 2, 3]] * 2


def test_copy_is_a_result_of_its_own():
    x = tg.param(X)
    y = np.copy(x)
    x.assign(0.0)
    np.testing.assert_array_equal(y.data, X)
    x.assign(X)
    np.copy(x).backward()
    np.testing.assert_array_equal(x.grad, 1.0)
    assert np.copy(tg.tensor([1, 2])).dtype == np.int64


def test_astype_between_floats(backend):
    x = tg.param(X)
    y = elementwise.astype(x, np.float32)
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y.data, X.astype(np.float32))
    (y * y).backward()
    assert tg.last_backward().backend == backend
    assert x.grad.dtype == np.float64
    np.testing.assert_array_equal(x.grad, 2.0 * X.astype(np.float32))
    low = tg.param(X.astype(np.float32))
    tg.sum(elementwise.astype(low, float)).backward()
    assert low.grad.dtype == np.float32 and (low.grad == 1.0).all()


def test_astype_forward_mode():
    _, t = tg.jvp(lambda x: elementwise.astype(x, "float32") * 2, (X,), (X,))
    assert t.dtype == np.float32
    np.testing.assert_array_equal(t, 2 * X.astype(np.float32))


def test_astype_to_what_has_no_gradient():
    for dtype in (int, bool, np.int32, "uint8"):
        out = elementwise.astype(tg.param(abs(X)), dtype)
        assert not out.requires_grad
        np.testing.assert_array_equal(out.numpy(), abs(X).astype(dtype), strict=True)


def test_astype_without_a_copy():
    x = tg.param(X)
    assert elementwise.astype(x, float, copy=False) is x
    assert elementwise.astype(x, float) is not x


@pytest.mark.skipif(not hasattr(np, "astype"), reason="NumPy 2.1 brought astype")
def test_numpys_astype():
    assert np.astype(tg.param(X), np.float32).requires_grad


def test_real_and_imaginary_parts():
    x = tg.param(X)
    assert np.real(x) is x
    np.testing.assert_array_equal(np.imag(x).numpy(), np.zeros_like(X))


@pytest.mark.parametrize("function", [np.round, np.around])
@pytest.mark.parametrize("decimals", [0, 1, 2, -1])
def test_round(function, decimals, backend):
    x = tg.param(X * 7)
    out = function(x, decimals)
    np.testing.assert_array_equal(out.numpy(), np.round(X * 7, decimals))
    (out * x).backward()
    np.testing.assert_allclose(x.grad, out.numpy(), rtol=1e-15)
    assert tg.last_backward().backend == backend
    np.testing.assert_array_equal(function(x, decimals=decimals).numpy(), out.numpy())


def test_lists_are_constants():
    assert elementwise.round([0.5, 1.5]).data.tolist() == [0.0, 2.0]
    assert elementwise.copy([1, 2]).data.tolist() == [1, 2]
    assert elementwise.ones_like([[1, 2]]).data.tolist() == [[1, 1]]


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda x: elementwise.astype(x, complex), TypeError, ["astype", "complex128"]),
        (lambda x: elementwise.astype(x, np.float16), TypeError, ["astype", "float16"]),
        (lambda x: elementwise.astype(x, "O"), TypeError, ["astype", "object"]),
        (lambda x: elementwise.astype(x, "nonsense"), TypeError, ["astype", "'nonsense'"]),
        (lambda x: np.zeros_like(x, dtype=complex), TypeError, ["zeros_like", "complex128"]),
        (lambda x: np.ones_like(x, order="F"), TypeError, ["numpy.ones_like", "order='F'"]),
        (lambda x: np.zeros_like(x, shape=1.5), TypeError, ["zeros_like", "shape", "1.5"]),
        (lambda x: np.full_like(x, [1.0, 2.0]), ValueError, ["full_like", "(2,)", "(2, 3)"]),
        (lambda x: np.full_like(x, np.ones((4, 2, 3))), ValueError, ["full_like", "(4, 2, 3)"]),
        (lambda x: np.copy(x, order="F"), TypeError, ["numpy.copy", "order='F'"]),
        (lambda x: np.round(x, 1.5), TypeError, ["round", "decimals", "1.5"]),
        (lambda x: np.round(x, (1, 2)), TypeError, ["round", "decimals"]),
        (lambda x: np.round(x, out=np.zeros((2, 3))), TypeError, ["numpy.round", "out="]),
        (lambda x: elementwise.real(1j), TypeError, ["real", "1j"]),
        (lambda x: elementwise.imag("a"), TypeError, ["imag", "'a'"]),
    ],
)
def test_errors(call, kind, words):
    x = tg.param(X)
    with pytest.raises(kind) as caught:
        call(x)
    for word in words:
        assert word in str(caught.value)
