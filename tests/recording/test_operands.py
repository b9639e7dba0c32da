"""Every kind of operand, on either side of every operator, of float32 and float64 tensors."""

from __future__ import annotations

import functools
import operator

import numpy as np
import pytest

import tapegraph as tg
from tests.quick import check_product, in_one

X = np.array([[0.5, 1.25], [2.0, 3.5]])
W = np.array([[1.5, 0.75], [0.5, 2.25]])
SEED = np.array([[1.0, -2.0], [0.5, 3.0]])

OPERANDS = {
    "ndarray": W,
    "float32 ndarray": W.astype(np.float32),
    "int ndarray": np.array([[1, 2], [3, 2]]),
    "0-d array": np.array(1.5),
    "np.float64": np.float64(1.5),
    "np.float32": np.float32(1.5),
    "np.int64": np.int64(2),
    "int": 2,
    "float": 1.5,
    "bool": True,
    "list": W.tolist(),
}
# name: operator, gradient of the left operand, gradient of the right, all of (g, left, right)
OPERATORS = {
    "add": (operator.add, lambda g, a, b: g, lambda g, a, b: g),
    "sub": (operator.sub, lambda g, a, b: g, lambda g, a, b: -g),
    "mul": (operator.mul, lambda g, a, b: g * b, lambda g, a, b: g * a),
    "div": (operator.truediv, lambda g, a, b: g / b, lambda g, a, b: -g * a / b**2),
    "pow": (
        operator.pow,
        lambda g, a, b: g * b * a ** (b - 1),
        lambda g, a, b: g * a**b * np.log(a),
    ),
    "matmul": (operator.matmul, lambda g, a, b: g @ b.T, lambda g, a, b: a.T @ g),
}


@in_one("name", OPERATORS)
def test_operand_matrix(name):
    check = functools.partial(operand_is_as_numpys, name)
    check_product(check, OPERANDS, ["left", "right"], [np.float32, np.float64])


def operand_is_as_numpys(name, kind, side, dtype):
    function, of_left, of_right = OPERATORS[name]
    array, other = X.astype(dtype), OPERANDS[kind]
    x = tg.param(array)

    def apply(operand):
        return function(operand, other) if side == "left" else function(other, operand)

    if name == "matmul" and np.ndim(other) == 0:
        with pytest.raises(ValueError, match=r"matmul: received shapes \((2, 2)?\) and"):
            apply(x)
        return

    y, plain = apply(x), apply(array)
    assert type(y) is tg.Tensor
    assert y.op == name
    assert any(operand is x for operand in y.inputs)
    np.testing.assert_array_equal(y.data, plain, strict=True)

    y.backward(SEED)
    wide = np.asarray(other, dtype=np.float64)
    exact = of_left(SEED, X, wide) if side == "left" else of_right(SEED, wide, X)
    assert x.grad.dtype == dtype
    np.testing.assert_allclose(x.grad, exact, rtol=1e-5 if dtype is np.float32 else 1e-12)


@pytest.mark.parametrize("name", OPERATORS)
def test_named_functions_are_the_operators(name):
    function = OPERATORS[name][0]
    np.testing.assert_array_equal(getattr(tg, name)(X, tg.param(W)).data, function(X, W))


@pytest.mark.parametrize("name", OPERATORS)
def test_two_tensors_of_two_dtypes_mix_as_numpy_does(name):
    function, of_left, of_right = OPERATORS[name]
    a, b = tg.param(X.astype(np.float32)), tg.param(W)
    y = function(a, b)
    assert y.dtype == np.float64
    y.backward(SEED)
    assert (a.grad.dtype, b.grad.dtype) == (np.float32, np.float64)
    np.testing.assert_allclose(a.grad, of_left(SEED, X, W), rtol=1e-6)
    np.testing.assert_allclose(b.grad, of_right(SEED, X, W), rtol=1e-12)


@pytest.mark.parametrize("name", OPERATORS)
def test_one_tensor_on_both_sides_gets_both_gradients(name):
    function, of_left, of_right = OPERATORS[name]
    x = tg.param(X)
    function(x, x).backward(SEED)
    np.testing.assert_allclose(x.grad, of_left(SEED, X, X) + of_right(SEED, X, X), rtol=1e-12)


@pytest.mark.parametrize("shape", [(), (1,), (2,), (1, 1), (2, 1), (3, 1, 2), (1, 2, 2)])
def test_broadcast_operand_gets_the_summed_gradient(shape):
    rng = np.random.default_rng(0)
    a, b = tg.param(rng.normal(size=shape)), tg.param(rng.normal(size=(2, 2)))
    y = a * b
    seed = rng.normal(size=y.shape)
    y.backward(seed)
    for leaf, other in ((a, b), (b, a)):
        full = seed * other.data
        axes = [i for i in range(full.ndim) if ((1,) * full.ndim + leaf.shape)[i - full.ndim] == 1]
        expected = full.sum(axis=tuple(axes)).reshape(leaf.shape)
        np.testing.assert_allclose(leaf.grad, expected, rtol=1e-12)


def test_an_array_never_swallows_a_tensor_in_place():
    x, total = tg.param([1.0, 2.0]), np.array([10.0, 10.0])
    with pytest.raises(TypeError, match=r"numpy\.add: .* a \+= b write a = a \+ b"):
        total += x
    np.testing.assert_array_equal(total, [10.0, 10.0])


def test_big_python_ints_stay_weak():
    y = tg.param(np.float32([1.0])) * 2**31
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y.data, np.float32([2.0**31]))


@pytest.mark.parametrize("f", [np.sin, lambda x: np.add(np.ones(2), x), np.sum])
def test_numpy_functions_keep_the_gradient(f):
    x = tg.param([1.0, 2.0])
    y = f(x)
    assert type(y) is tg.Tensor
    assert y.requires_grad
    np.testing.assert_array_equal(y.data, f(x.data))
