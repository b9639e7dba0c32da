"""A zero cotangent contributes exactly zero, whatever the local derivative; a real NaN is kept."""

from __future__ import annotations

import numpy as np
import pytest

import tapegraph as tg
from tests.quick import thinned

inf, nan = np.inf, np.nan


@pytest.fixture(params=[np.float32, np.float64])
def dtype(request):
    return request.param


# float32 in TensorFlow with --thorough alone.
BOTH = pytest.mark.parametrize(
    ("dtype", "backend"),
    [
        (np.float64, "native"),
        (np.float32, "native"),
        (np.float64, "tensorflow"),
        pytest.param(np.float32, "tensorflow", marks=pytest.mark.thorough),
    ],
    indirect=True,
)


def gradient(f, point, dtype, seed=None):
    """Return df/dpoint; the forward is expected to divide by zero and the like."""
    x = tg.param(np.array(point, dtype=dtype))
    with np.errstate(all="ignore"):
        f(x).backward(seed)
    assert tg.last_backward().backend == tg.get_backend()
    assert x.grad.dtype == dtype
    return x.grad


def norm(x):
    return tg.sqrt(tg.sum(x * x, axis=-1))


def masked_norm(x):
    n = norm(x)
    return tg.where(n > 0, n, 0.0)


def masked_softmax(x):
    scores = tg.where([[1, 1, 0]], x, -inf)
    return tg.softmax(scores) * np.float32([[1.0, 3.0, 7.0]])


# softmax over [1, 2] weighted by [1, 3]: the gradient is -+2 p q.
P = np.exp(-1.0) / (1.0 + np.exp(-1.0))

INF_MATRIX = np.float32([[inf, 1.0], [nan, 3.0], [-inf, 0.0]])

MASKED = {
    "sqrt": (lambda x: tg.where(x > 0, tg.sqrt(x), 0.0), [-1.0, 0.0, 4.0], [0.0, 0.0, 0.25]),
    "sqrt other branch": (lambda x: tg.where(x <= 0, 0.0, tg.sqrt(x)), [-1.0, 4.0], [0.0, 0.25]),
    "log": (lambda x: tg.where(x > 0, tg.log(x), 0.0), [-1.0, 0.0, 2.0], [0.0, 0.0, 0.5]),
    "reciprocal": (lambda x: tg.where(x != 0, 1.0 / x, 0.0), [0.0, 2.0], [0.0, -0.25]),
    "0/0": (lambda x: tg.where(x != 0, x / x, 0.0), [0.0, 2.0], [0.0, 0.0]),
    "division by a mask": (lambda x: tg.where([0, 1], x / [0.0, 2.0], 0.0), [1.0, 1.0], [0.0, 0.5]),
    "negative power": (lambda x: tg.where(x != 0, x**-2, 0.0), [0.0, 2.0], [0.0, -0.25]),
    "root power": (lambda x: tg.where(x > 0, x**0.5, 0.0), [-1.0, 0.0, 4.0], [0.0, 0.0, 0.25]),
    "power of arrays": (
        lambda x: tg.where(x > 0, x ** np.float32([0.5, 2.0]), 0.0),
        [-1.0, 3.0],
        [0.0, 6.0],
    ),
    "exponent": (lambda x: tg.where(x < 1e3, 2.0**x, 0.0), [1e4, 0.0], [0.0, np.log(2.0)]),
    "exp overflow": (lambda x: tg.where(x < 10, tg.exp(x), 0.0), [1e4, 0.0], [0.0, 1.0]),
    "exp minus exp": (
        lambda x: tg.where(x < 10, tg.exp(x) - tg.exp(2.0 * x), 0.0),
        [1e4, 0.0],
        [0.0, -1.0],
    ),
    "norm": (masked_norm, [[0.0, 0.0], [3.0, 4.0]], [[0.0, 0.0], [0.6, 0.8]]),
    "norm times a mask": (
        lambda x: norm(x) * [0.0, 1.0],
        [[0.0, 0.0], [3.0, 4.0]],
        [[0.0, 0.0], [0.6, 0.8]],
    ),
    "sqrt times zero": (lambda x: tg.sqrt(x) * 0.0, [0.0, 4.0], [0.0, 0.0]),
    "log sliced away": (lambda x: tg.log(x)[1:], [0.0, 2.0], [0.0, 0.5]),
    "log gathered away": (lambda x: tg.gather(tg.log(x), [1, 1]), [0.0, 2.0], [0.0, 1.0]),
    "log under relu": (lambda x: tg.relu(tg.log(x)), [0.0, 2.0], [0.0, 0.5]),
    "matmul with inf": (
        lambda x: (x @ INF_MATRIX)[:, 1],
        [[1.0, 2.0, 3.0]],
        [[1.0, 3.0, 0.0]],
    ),
    "vector matmul with inf": (
        lambda x: (x @ INF_MATRIX) * [0.0, 1.0],
        [1.0, 2.0, 3.0],
        [1.0, 3.0, 0.0],
    ),
    "inf from the left": (
        lambda x: (INF_MATRIX.T @ x)[1],
        [[1.0], [2.0], [3.0]],
        [[1.0], [3.0], [0.0]],
    ),
    "batch_matmul with inf": (
        lambda x: (x @ np.stack([INF_MATRIX] * 2))[..., 1],
        [[[1.0, 2.0, 3.0]]] * 2,
        [[[1.0, 3.0, 0.0]]] * 2,
    ),
    "product with inf": (lambda x: x * [inf, 2.0] * [0.0, 1.0], [1.0, 1.0], [0.0, 2.0]),
    "softmax with a -inf mask": (
        masked_softmax,
        [[1.0, 2.0, 5.0]],
        [[-2.0 * P * (1.0 - P), 2.0 * P * (1.0 - P), 0.0]],
    ),
    "cross-entropy with a -inf logit": (
        lambda x: tg.softmax_crossentropy(tg.where([1, 1, 0], x, -inf), 1),
        [1.0, 2.0, 5.0],
        [P, -P, 0.0],
    ),
    "softmax of a NaN": (
        lambda x: tg.where([1, 0], x, 0.0) + tg.softmax(tg.log(x - 3.0)) * 0.0,
        [1.0, 2.0],
        [1.0, 0.0],
    ),
    "mse_loss that overflows": (
        lambda x: tg.where([1, 0], x, 0.0) + tg.mse_loss(x * 1e300 * 1e300, [0.0, 0.0]) * 0.0,
        [1.0, 2.0],
        [1.0, 0.0],
    ),
    "sum of an infinite row": (
        lambda x: tg.where([0, 1], tg.sum(tg.log(x), axis=1), 0.0),
        [[0.0, 1.0], [2.0, 4.0]],
        [[0.0, 0.0], [0.5, 0.25]],
    ),
}


@BOTH
@pytest.mark.parametrize("case", thinned(MASKED, 2))
@pytest.mark.one_in(6, of="tensorflow")
def test_masked_out_elements_get_exactly_zero(case, dtype, backend):
    f, point, expected = MASKED[case]
    got = gradient(f, point, dtype)
    expected = np.array(expected)
    np.testing.assert_array_equal(got[expected == 0], 0.0)
    np.testing.assert_allclose(got, expected, rtol=1e-5 if dtype is np.float32 else 1e-12)


def test_masked_layer_norm_of_a_constant_row(dtype):
    tg.set_backend("native")  # in this version it has no lowering
    got = gradient(
        lambda x: tg.where([[0], [1]], tg.layer_norm(x, [1.0, 0.0, 0.0], 0.0, eps=0.0), 0.0),
        [[2.0, 2.0, 2.0], [1.0, 2.0, 6.0]],
        dtype,
    )
    # For n = (x - mean) / s: dn0/dx = ((1, 0, 0) - 1/3 - n0 n / 3) / s.
    n = np.array([-2.0, -1.0, 3.0]) / np.sqrt(14.0 / 3.0)
    expected = (np.array([1.0, 0.0, 0.0]) - 1.0 / 3.0 - n[0] * n / 3.0) / np.sqrt(14.0 / 3.0)
    np.testing.assert_array_equal(got[0], 0.0)
    np.testing.assert_allclose(got[1], expected, rtol=1e-5)


SEEDED = {
    "sqrt": (tg.sqrt, [0.0, 4.0], 0.25),
    "log": (tg.log, [0.0, 2.0], 0.5),
    "div": (lambda x: 1.0 / x, [0.0, 2.0], -0.25),
    "pow": (lambda x: x**-1.0, [0.0, 2.0], -0.25),
    "exp": (tg.exp, [1e4, 0.0], 1.0),
    "mul": (lambda x: x * np.float32([nan, 3.0]), [1.0, 1.0], 3.0),
}


@pytest.mark.one_in(2, of="tensorflow")
@pytest.mark.parametrize("case", SEEDED)
def test_zeros_of_the_seed_stay_zero(case, dtype, backend):
    f, point, slope = SEEDED[case]
    np.testing.assert_allclose(gradient(f, point, dtype, seed=[0.0, 1.0]), [0.0, slope], rtol=1e-6)


@pytest.mark.one_in(3, of="tensorflow")
@pytest.mark.parametrize("scale", [0.0, -0.0])
def test_a_zero_that_reaches_a_leaf_twice_does_not_hide_the_other_way(scale, dtype, backend):
    got = gradient(lambda x: tg.log(x) * scale + 3.0 * x, [0.0], dtype)
    np.testing.assert_array_equal(got, [3.0])


REAL = {
    "sqrt of a negative": (tg.sqrt, [-1.0, 4.0], [nan, 0.25]),
    "sqrt at 0": (tg.sqrt, [0.0, 4.0], [inf, 0.25]),
    "log at 0": (tg.log, [0.0, 2.0], [inf, 0.5]),
    "division by 0": (lambda x: x / [0.0, 2.0], [1.0, 1.0], [inf, 0.5]),
    "reciprocal of 0": (lambda x: 1.0 / x, [0.0, 1.0], [-inf, -1.0]),
    "NaN factor": (lambda x: x * [nan, 2.0], [1.0, 1.0], [nan, 2.0]),
    "NaN input": (lambda x: x * x, [nan, 2.0], [nan, 4.0]),
    "NaN through a branch taken": (lambda x: tg.where(x < 9, x * nan, x), [1.0, 9.0], [nan, 1.0]),
    "inf - inf": (
        lambda x: x @ np.float32([[inf, -inf]]) if x.ndim > 1 else x,
        [[1.0]],
        [[nan]],
    ),
    "NaN in a matrix": (
        lambda x: x @ np.float32([[nan, 1.0], [2.0, 3.0]]),
        [[1.0, 1.0]],
        [[nan, 5.0]],
    ),
    "inf in a matrix": (
        lambda x: x @ np.float32([[inf, 1.0], [2.0, 3.0]]),
        [[1.0, 1.0]],
        [[inf, 5.0]],
    ),
}


@pytest.mark.one_in(2, of="tensorflow")
@BOTH
@pytest.mark.parametrize("case", REAL)
def test_real_nan_and_inf_are_kept(case, dtype, backend):
    f, point, expected = REAL[case]
    np.testing.assert_allclose(gradient(f, point, dtype), expected, rtol=1e-6)


def test_nan_seed_is_kept(dtype, backend):
    np.testing.assert_array_equal(
        gradient(lambda x: 2.0 * x, [1.0, 1.0], dtype, seed=[nan, 1.0]), [nan, 2.0]
    )


def test_nan_and_masked_infinity_side_by_side(dtype, backend):
    got = gradient(lambda x: tg.where([1, 0, 1], tg.sqrt(x), 0.0), [-1.0, 0.0, 4.0], dtype)
    np.testing.assert_array_equal(got, [nan, 0.0, 0.25])


LAST_PATCH = [[[[0, 0], [0, 1]]]]
INF_CORNER = np.float32([[[[inf, 1.0], [1.0, 1.0]]]])
INF_IMAGE = np.float32([[[[inf, 1.0, 1.0], [1.0, 2.0, 3.0], [1.0, 4.0, 5.0]]]])
LAYERS = {
    "conv2d by its images": (
        lambda x: tg.where(LAST_PATCH, tg.conv2d(x, INF_CORNER), 0.0),
        np.ones((1, 1, 3, 3)),
        [[[[0.0, 0.0, 0.0], [0.0, inf, 1.0], [0.0, 1.0, 1.0]]]],
    ),
    "conv2d by its kernels": (
        lambda k: tg.where(LAST_PATCH, tg.conv2d(INF_IMAGE, k), 0.0),
        np.ones((1, 1, 2, 2)),
        [[[[2.0, 3.0], [4.0, 5.0]]]],
    ),
    "max_pool2d": (
        lambda x: tg.where([[[[0, 1]]]], tg.max_pool2d(tg.sqrt(x), 2), 0.0),
        [[[[0.0, 0.0, 1.0, 4.0], [0.0, 0.0, 1.0, 1.0]]]],
        [[[[0.0, 0.0, 0.0, 0.25], [0.0, 0.0, 0.0, 0.0]]]],
    ),
}


@pytest.mark.parametrize("case", LAYERS)
def test_zeros_absorb_in_layers(case, dtype):
    f, point, expected = LAYERS[case]
    with tg.use_backend("native"):
        np.testing.assert_allclose(gradient(f, point, dtype), expected, rtol=1e-6)
