"""Nodes that are quicker than TensorFlow's own are right at the edges, or step aside there."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.capture import Capture
from tapegraph.ops.index import scatter
from tests.quick import thinned

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="needs TensorFlow"
)

inf, nan = math.inf, math.nan
SIDE = 150  # squared, enough elements for the nodes of large arrays
BOTH = pytest.mark.parametrize("dtype", [np.float32, np.float64])
# In float64 too with --thorough; what has constants of a dtype is tried in both.
DTYPES = pytest.mark.parametrize(
    "dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.thorough)]
)


def in_graph(call: Callable[..., Any], *arrays: Any) -> Any:
    """Compute in the graph of a compiled step."""
    from tests.lowering.forward import forward

    with Capture() as capture, np.errstate(all="ignore"):
        y = call(*map(capture.input, arrays))
        recording = capture.recording([y])
    run = forward(recording)
    return run([recording.values[slot] for slot in recording.program.fed])[0]


def gradient_in_graph(call: Callable[..., Any], *arrays: Any, seed: Any = None) -> list[Any]:
    from tests.lowering.forward import gradient

    with Capture() as capture, np.errstate(all="ignore"):
        inputs = [capture.input(a) for a in arrays]
        y = call(*inputs)
        recording = capture.recording([y])
    wanted = [next(s for s, n in enumerate(recording.nodes) if n is leaf) for leaf in inputs]
    run = gradient(recording, wanted)
    feeds = [recording.values[slot] for slot in recording.program.fed]
    seed = np.ones(y.shape, y.dtype) if seed is None else seed
    with np.errstate(over="ignore"):
        return run(feeds, [seed])[1]


# ------------------------------------------------------------------ one number at a time

EDGES = [0.0, -0.0, inf, -inf, nan, 1.0, -1.0, 2.0, -3.5, 1e-3, -1e-3, 1e-10, -1e-10]
EXPONENTIAL = [*EDGES, 88.0, -88.0, 89.3, -89.3, 127.999, 128.0, -124.5, 200.0, -200.0, 1e6, -1e6]
ANGLES = [*EDGES, 0.785, 1.57, -1.57, 3.14159, 100.0, -1e4, 1e6]
SINES = [*EDGES, 0.5, -0.5, 0.999999, -0.999999, 1.5, -1.5]
# What is 1 ulp of a formula of a few nodes, each within 2: no more than 8.
FUNCTIONS = {
    "exp2": (tg.exp2, np.exp2, lambda x, y: y * np.log(np.longdouble(2)), EXPONENTIAL),
    "sinh": (tg.sinh, np.sinh, lambda x, y: np.cosh(x), EXPONENTIAL),
    "cosh": (tg.cosh, np.cosh, lambda x, y: np.sinh(x), EXPONENTIAL),
    "expm1": (tg.expm1, np.expm1, lambda x, y: np.exp(x), EXPONENTIAL),
    "tan": (tg.tan, np.tan, lambda x, y: 1 + y * y, ANGLES),
    "arcsin": (tg.arcsin, np.arcsin, lambda x, y: 1 / np.sqrt((1 - x) * (1 + x)), SINES),
    "arccos": (tg.arccos, np.arccos, lambda x, y: -1 / np.sqrt((1 - x) * (1 + x)), SINES),
}


@BOTH
@pytest.mark.parametrize("name", FUNCTIONS)
@np.errstate(all="ignore")
@pytest.mark.one_in(6)
def test_functions_at_their_edges(name, dtype):
    ours, true, slope, edges = FUNCTIONS[name]
    between = np.random.default_rng(0).uniform(-0.99, 0.99, 200)
    x = np.concatenate([edges, between]).astype(dtype)
    exact = x.astype(np.longdouble)
    y = true(exact)
    ulp = float(np.finfo(dtype).eps)
    got = in_graph(ours, x)
    np.testing.assert_allclose(got, y.astype(dtype), rtol=8 * ulp, atol=0)
    zeros = got == 0
    np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(y.astype(dtype)[zeros]))
    # Slopes magnify what rounding did to the result.
    (grad,) = gradient_in_graph(ours, x)
    want = slope(exact, y.astype(dtype)).astype(dtype)
    tiny = float(np.finfo(dtype).tiny)  # below it TensorFlow gives 0
    np.testing.assert_allclose(grad, want, rtol=64 * ulp, atol=tiny)


@BOTH
def test_exp2_of_integers_is_exact(dtype):
    least, most = np.finfo(dtype).minexp, np.finfo(dtype).maxexp
    x = np.arange(least, most).astype(dtype)
    np.testing.assert_array_equal(in_graph(tg.exp2, x), np.ldexp(dtype(1), np.arange(least, most)))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("shape", [(), (2, 0)], ids=str)
@pytest.mark.parametrize("name", thinned(FUNCTIONS, 2))
def test_functions_of_no_axes_and_of_nothing(name, shape):
    x = np.full(shape, 0.5)
    ours, true, _, _ = FUNCTIONS[name]
    np.testing.assert_allclose(in_graph(ours, x), true(x), rtol=1e-14)
    assert gradient_in_graph(ours, x)[0].shape == shape


@DTYPES
@np.errstate(all="ignore")
def test_remainders(dtype):
    sides = [0.0, -0.0, 1.0, -1.0, 5.5, -5.5, 3.0, 1e-30, -1e-30, 3e-30, inf, -inf, nan]
    a, b = (x.ravel().astype(dtype) for x in np.meshgrid(sides, sides))
    got = in_graph(np.mod, a, b)
    np.testing.assert_array_equal(got, np.mod(a, b))


TRUTHS = np.array([0.0, -0.0, 1.0, -2.0, nan, inf, -inf])


@DTYPES
@pytest.mark.parametrize(
    "f", [np.logical_and, np.logical_or, np.logical_xor, np.logical_not], ids=lambda f: f.__name__
)
def test_numbers_as_truths(f, dtype):
    a, b = (x.ravel().astype(dtype) for x in np.meshgrid(TRUTHS, TRUTHS))
    operands = (a, b)[: f.nin]
    np.testing.assert_array_equal(in_graph(f, *operands), f(*operands))
    masks = tuple(x > 0 for x in operands)
    np.testing.assert_array_equal(in_graph(f, *masks), f(*masks))


# ------------------------------------------------------------------ large arrays


def legs(dtype: Any) -> dict[str, Any]:
    """Return pairs that the plain square root serves, and pairs that it does not."""
    a, b = np.random.default_rng(1).uniform(0.5, 2.0, (2, SIDE, SIDE))
    huge, tiny = (float(np.finfo(dtype).max) / 4, float(np.finfo(dtype).tiny) * 2**30)
    special = a.copy()
    special[0, :5] = [inf, -inf, nan, 0.0, -0.0]
    other = b.copy()
    other[0, :5] = [nan, 1.0, 2.0, 0.0, -0.0]
    pairs = {
        "plain": (a, -b),
        "huge": (a * huge, b * huge),
        "tiny": (a * tiny, b * tiny),
        "one tiny": (np.where(np.eye(SIDE) > 0, tiny, a), np.where(np.eye(SIDE) > 0, tiny, b)),
        "special": (special, other),
        "a row": (a, b[0]),
    }
    return {name: tuple(x.astype(dtype) for x in pair) for name, pair in pairs.items()}


@pytest.mark.one_in(2)
@DTYPES
@pytest.mark.parametrize("name", ["plain", "huge", "tiny", "one tiny", "special", "a row"])
@np.errstate(all="ignore")
def test_hypot_of_many(name, dtype):
    a, b = legs(dtype)[name]
    want = np.hypot(a.astype(np.longdouble), b.astype(np.longdouble))
    rtol = 8 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(in_graph(tg.hypot, a, b), want.astype(dtype), rtol=rtol, atol=0)
    if name != "special":
        ga, gb = gradient_in_graph(tg.hypot, a, b)
        np.testing.assert_allclose(ga, (a / want).astype(dtype), rtol=2 * rtol, atol=0)
        wanted = (b / want).sum(axis=0) if name == "a row" else b / want
        np.testing.assert_allclose(gb, wanted.astype(dtype), rtol=SIDE * rtol, atol=0)


def test_steps_through_many():
    x = np.random.default_rng(2).normal(size=(SIDE, 12, 11))
    for key in (np.s_[140:10:-3, ::2, 5:], np.s_[::-1, 3, ::-1], np.s_[None, 1::7], np.s_[5:5:2]):
        np.testing.assert_array_equal(in_graph(lambda x, key=key: x[key], x), x[key])


@DTYPES
def test_many_numbers_are_scattered(dtype):
    rng = np.random.default_rng(2)
    x, at = rng.normal(size=(SIDE, SIDE)).astype(dtype), rng.integers(0, 5000, (SIDE, SIDE))
    x[0, :2] = inf, nan
    want = np.zeros(5000, dtype)
    np.add.at(want, at, x)
    got = in_graph(lambda x, at: scatter(x, at, (50, 100)), x, at)
    np.testing.assert_allclose(got, want.reshape(50, 100), rtol=1e-5, atol=1e-5)
    seed = rng.normal(size=(50, 100)).astype(dtype)
    (grad,) = gradient_in_graph(lambda x: scatter(x, at, (50, 100)), x, seed=seed)
    np.testing.assert_array_equal(grad, seed.ravel()[at])


@DTYPES
@pytest.mark.parametrize("special", [False, True])
@np.errstate(all="ignore")
def test_logaddexp_of_many(special, dtype):
    a, b = np.random.default_rng(2).uniform(-50, 50, (2, SIDE, SIDE)).astype(dtype)
    if special:
        a[0, :6], b[0, :6] = [inf, -inf, -inf, inf, nan, 1.0], [inf, -inf, 2.0, 3.0, 1.0, nan]
    want = np.logaddexp(a.astype(np.longdouble), b.astype(np.longdouble)).astype(dtype)
    ulp = float(np.finfo(dtype).eps)
    np.testing.assert_allclose(in_graph(np.logaddexp, a, b), want, rtol=8 * ulp, atol=8 * ulp)


@pytest.mark.parametrize("kind", ["positive", "zeros", "far"])
@np.errstate(all="ignore")
def test_gradient_of_many_powers(kind):
    rng = np.random.default_rng(2)
    a, b = rng.uniform(0.5, 2.0, (SIDE, SIDE)), rng.uniform(-2.0, 2.0, (SIDE, SIDE))
    if kind == "zeros":
        a[0, :3], b[0, :3] = 0.0, [1.0, 2.0, 3.0]
    if kind == "far":
        a[0, :2], b[0, :2] = [1e-200, 1e200], [1.6, 1.6]
    ga, gb = gradient_in_graph(lambda a, b: a**b, a, b)
    exact = a.astype(np.longdouble)
    want = b * exact ** (b - 1)
    np.testing.assert_allclose(ga, want.astype(np.float64), rtol=1e-12)
    rates = np.where(a > 0, np.log(np.where(a > 0, exact, 1.0)), 0.0)
    np.testing.assert_allclose(gb, (exact**b * rates).astype(np.float64), rtol=1e-12, atol=1e-300)


@pytest.mark.one_in(2)
@DTYPES
@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("f", [np.argmax, np.argmin], ids=lambda f: f.__name__)
def test_places_among_many(f, axis, dtype):
    x = np.random.default_rng(2).integers(-3, 4, (SIDE, SIDE)).astype(dtype)  # many ties
    np.testing.assert_array_equal(in_graph(lambda x: f(x, axis=axis), x), f(x, axis=axis))
    x[0, :2] = inf, -inf
    np.testing.assert_array_equal(in_graph(lambda x: f(x, axis=axis), x), f(x, axis=axis))
    x[3, 5] = x[3, 7] = x[9, 5] = nan
    np.testing.assert_array_equal(in_graph(lambda x: f(x, axis=axis), x), f(x, axis=axis))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", ["regular", "singular", "nearly singular", "huge"])
def test_gradient_of_large_determinants(kind):
    rng = np.random.default_rng(3)
    a = np.eye(SIDE) + rng.normal(0, 0.25 / SIDE**0.5, (SIDE, SIDE))
    if kind == "singular":
        a[0] = a[1]
    if kind == "nearly singular":
        a[0] = a[1] + 1e-9 * rng.normal(size=SIDE)
    if kind == "huge":
        a *= 50.0  # its determinant is some 1e255
    (grad,) = gradient_in_graph(np.linalg.det, a)
    # A cofactor is the determinant of what is left without its row and column.
    for i, j in [(0, 0), (0, 1), (1, 1), (7, 3)]:
        minor = np.delete(np.delete(a, i, 0), j, 1)
        with np.errstate(all="ignore"):
            want = (-1) ** (i + j) * np.linalg.det(minor)
        np.testing.assert_allclose(grad[i, j], want, rtol=1e-5, atol=1e-9)


@DTYPES
def test_norm_of_everything(dtype):
    x = np.random.default_rng(4).uniform(-2, 2, (SIDE, SIDE)).astype(dtype)
    want = math.sqrt(math.fsum(float(v) ** 2 for v in x.ravel()))
    got = in_graph(lambda x: np.linalg.norm(x), x)
    assert math.isclose(got, want, rel_tol=SIDE * float(np.finfo(dtype).eps))
    for values in ([0.0, 0.0], [inf, 1.0], [nan, 1.0], [3.0, -4.0], []):
        vector = np.array(values, dtype)
        with np.errstate(all="ignore"):
            want = np.linalg.norm(vector)
        np.testing.assert_array_equal(in_graph(lambda x: np.linalg.norm(x), vector), want)


@DTYPES
@pytest.mark.parametrize("axis", [0, 1])
@np.errstate(all="ignore")
def test_softmax_along_another_axis(axis, dtype):
    rng = np.random.default_rng(5)
    x = rng.uniform(-2, 2, (3, 4, 5)).astype(dtype)
    x[0, 0, :4] = [1e30, -1e30, -inf, nan]
    exact = x.astype(np.longdouble)
    odds = np.exp(exact - exact.max(axis=axis, keepdims=True))
    y = odds / odds.sum(axis=axis, keepdims=True)
    g = rng.uniform(-1, 1, x.shape).astype(dtype)
    rtol = 32 * float(np.finfo(dtype).eps)
    got = in_graph(lambda x: tg.softmax(x, axis=axis), x)
    np.testing.assert_allclose(got, y.astype(dtype), rtol=rtol)
    want = (g - (g * y).sum(axis=axis, keepdims=True)) * y
    (grad,) = gradient_in_graph(lambda x: tg.softmax(x, axis=axis), x, seed=g)
    np.testing.assert_allclose(grad, want.astype(dtype), rtol=rtol, atol=rtol)


# ------------------------------------------------------------------ choices and running products

CHOICES = np.array([0.0, 1.0, -2.0, nan, inf, -inf])


@DTYPES
@pytest.mark.parametrize("f", [np.fmax, np.fmin], ids=lambda f: f.__name__)
def test_choices_beside_nan(f, dtype):
    a, b = (x.ravel().astype(dtype) for x in np.meshgrid(CHOICES, CHOICES))
    np.testing.assert_array_equal(in_graph(f, a, b), f(a, b))
    g = np.linspace(1.0, 2.0, a.size).astype(dtype)
    mine = (f(a, b) == a) | (np.isnan(a) & np.isnan(b))
    other = (f(a, b) == b) | (np.isnan(a) & np.isnan(b))
    ga, gb = gradient_in_graph(f, a, b, seed=g)
    np.testing.assert_array_equal(ga, g * mine / (1.0 * mine + other))
    np.testing.assert_array_equal(gb, g * other / (1.0 * mine + other))


def factors(kind: str, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return factors whose products stay in range, or do not."""
    rng = np.random.default_rng(6)
    x = rng.uniform(0.97, 1.03, shape) * rng.choice([-1.0, 1.0], shape)
    if kind == "zeros":
        x[0, 3] = x[1, 3] = x[1, 9] = 0.0
    if kind == "far":
        x[0, 2], x[0, 7] = 1e30, 1e-30
        x[2, 2:4], x[2, 7:9] = 1e-30, 1e30
    return x.astype(dtype)


def others_multiplied(x: Any) -> Any:
    """Multiply all others of a row, in extended precision."""
    left, right = np.ones(x.shape, np.longdouble), np.ones(x.shape, np.longdouble)
    left[:, 1:] = np.cumprod(x[:, :-1].astype(np.longdouble), axis=1)
    right[:, :-1] = np.cumprod(x[:, :0:-1].astype(np.longdouble), axis=1)[:, ::-1]
    return left * right


@pytest.mark.parametrize("shape", [(130, 130), (3, 20)], ids=str)
@pytest.mark.parametrize("kind", ["near one", "zeros", "far"])
def test_gradient_of_products(kind, shape):
    x = factors(kind, shape, np.float64)
    g = np.random.default_rng(7).uniform(-1, 1, shape[0])
    (grad,) = gradient_in_graph(lambda x: np.prod(x, axis=1), x, seed=g)
    want = others_multiplied(x) * g[:, None]
    np.testing.assert_allclose(grad, want.astype(np.float64), rtol=1e-12, atol=1e-300)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("shape", [(130, 130), (3, 20)], ids=str)
@pytest.mark.parametrize("kind", ["near one", "zeros", "far"])
def test_gradient_of_running_products(kind, shape):
    x = factors(kind, shape, np.float64)
    g = np.random.default_rng(8).uniform(-1, 1, shape)
    (grad,) = gradient_in_graph(lambda x: np.cumprod(x, axis=1), x, seed=g)
    for i in range(3):
        for k in (0, 1, 5, shape[1] - 1):
            exact = x[i].astype(np.longdouble)
            exact[k] = 1.0
            products = np.cumprod(exact)[k:]
            want = float((g[i, k:] * products).sum())
            room = 1e-12 * float(np.abs(g[i, k:] * products).sum())
            np.testing.assert_allclose(grad[i, k], want, rtol=1e-12, atol=room)


@pytest.mark.one_in(2)
@DTYPES
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(100, 200), (128, 131), (2, 5)], ids=str)
def test_running_sums(shape, axis, dtype):
    x = np.random.default_rng(9).uniform(-1, 1, shape).astype(dtype)
    room = 4 * shape[axis] * float(np.finfo(dtype).eps)
    want = np.cumsum(x.astype(np.longdouble), axis=axis)
    np.testing.assert_allclose(in_graph(lambda x: np.cumsum(x, axis=axis), x), want, atol=room)
    g = x[::-1].copy()
    (grad,) = gradient_in_graph(lambda x: np.cumsum(x, axis=axis), x, seed=g)
    back = np.flip(np.cumsum(np.flip(g.astype(np.longdouble), axis), axis=axis), axis)
    np.testing.assert_allclose(grad, back, atol=room)


@DTYPES
@pytest.mark.parametrize("value", [nan, inf, -inf])
def test_running_sums_carry_nothing_backwards(value, dtype):
    x = np.ones((100, 200), dtype)
    x[1, 50] = value
    want = np.cumsum(x, axis=1)
    np.testing.assert_array_equal(in_graph(lambda x: np.cumsum(x, axis=1), x), want)


def test_running_sums_of_many_integers_have_a_node():
    x = np.arange(20000).reshape(100, 200)
    np.testing.assert_array_equal(in_graph(lambda x: np.cumsum(x, axis=1), x), np.cumsum(x, axis=1))
