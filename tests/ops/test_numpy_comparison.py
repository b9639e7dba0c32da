"""NumPy's choosing, rounding and signs, called on tensors."""

from __future__ import annotations

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.ops import elementwise

# The first whose np.clip takes min and max by these names.
NUMPY_2_1 = np.lib.NumpyVersion(np.__version__) >= "2.1.0"

nan, inf = np.nan, np.inf
SPECIAL = np.array([-inf, -2.5, -2.0, -0.5, -0.0, 0.0, 0.5, 1.0, 1.5, inf, nan])


@pytest.fixture(autouse=True)
def native_engine():
    tg.set_backend("native")


def same(got, want, dtype=np.float64):
    """Compare to the bit, the sign of a zero too."""
    assert isinstance(got, tg.Tensor)
    assert got.requires_grad
    np.testing.assert_array_equal(got.numpy(), want.astype(dtype), strict=True)
    np.testing.assert_array_equal(
        np.signbit(got.numpy())[~np.isnan(want)], np.signbit(want)[~np.isnan(want)]
    )


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "function",
    [np.sign, np.floor, np.ceil, np.rint, np.trunc, np.fabs, np.absolute, np.positive, np.negative],
    ids=lambda f: f.__name__,
)
def test_functions_of_one_array(function, dtype):
    x = SPECIAL.astype(dtype)
    same(function(tg.param(x)), function(x), dtype)
    same(getattr(tg, function.__name__)(tg.param(x)), function(x), dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "function",
    [np.maximum, np.minimum, np.fmax, np.fmin, np.remainder, np.fmod, np.copysign, np.heaviside],
    ids=lambda f: f.__name__,
)
def test_functions_of_two_arrays(function, dtype):
    a, b = np.meshgrid(SPECIAL.astype(dtype), SPECIAL.astype(dtype))
    with np.errstate(invalid="ignore"):
        want = function(a, b)
        got = function(tg.param(a), tg.param(b))
        np.testing.assert_array_equal(got.numpy(), want, strict=True)
        if function in (np.remainder, np.fmod, np.copysign):
            real = ~np.isnan(want)
            np.testing.assert_array_equal(np.signbit(got.numpy())[real], np.signbit(want)[real])
        for x, y in ((a, 2), (a, 1.5), (a, np.array(2.0, dtype)), (1.5, b)):
            tensors = [tg.param(v) if v is a or v is b else v for v in (x, y)]
            np.testing.assert_array_equal(function(*tensors).numpy(), function(x, y), strict=True)


def test_clip():
    x, low, high = np.linspace(-2, 2, 9), np.linspace(-1, 0, 9), np.linspace(0.5, 1, 9)
    for args, options in (
        ((-1, 1), {}),
        ((None, 0.5), {}),
        ((0.25, None), {}),
        ((low, high), {}),
        ((low.reshape(9, 1), 1.0), {}),
        ((1.0, -1.0), {}),
        ((), {"a_min": -1.0, "a_max": high}),
        *([((), {"min": -1.0, "max": 0.0}), ((), {"max": 0.0})] if NUMPY_2_1 else []),
    ):
        same(np.clip(tg.param(x), *args, **options), np.clip(x, *args, **options))
    assert np.clip(tg.param(np.float32([3.0])), 0.0, 1).dtype == np.float32
    assert elementwise.clip([1, 5], 2, 3).data.tolist() == [2, 3]
    with np.errstate(invalid="ignore"):
        got = np.clip(tg.param(SPECIAL), tg.tensor(-1.0), nan).numpy()
    np.testing.assert_array_equal(got, np.clip(SPECIAL, -1.0, nan))


def test_clip_by_tensors_moves_the_bounds():
    x, low, high = tg.param([-3.0, 0.0, 3.0]), tg.param(-1.0), tg.param(1.0)
    np.clip(x, low, high).backward()
    assert (x.grad.tolist(), low.grad, high.grad) == ([0.0, 1.0, 0.0], 1.0, 1.0)


def test_nan_to_num():
    x = tg.param(SPECIAL)
    same(np.nan_to_num(x), np.nan_to_num(SPECIAL))
    same(np.nan_to_num(x, nan=1.0, posinf=2.0), np.nan_to_num(SPECIAL, nan=1.0, posinf=2.0))
    same(np.nan_to_num(x, True, 1.0, 2.0, 3.0), np.nan_to_num(SPECIAL, True, 1.0, 2.0, 3.0))
    low = SPECIAL.astype(np.float32)
    same(np.nan_to_num(tg.param(low)), np.nan_to_num(low), np.float32)
    with pytest.raises(TypeError, match="copy"):
        np.nan_to_num(x, copy=False)


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_an_infinite_cotangent_stays_with_the_one_chosen(name, backend):
    a, b = tg.param([0.0, 1.0]), tg.param([-1.0, 4.0] if name == "maximum" else [1.0, -4.0])
    with np.errstate(all="ignore"):
        np.cbrt(getattr(np, name)(a, b)).backward()
    assert a.grad.tolist() == [inf, 0.0]
    assert b.grad[0] == 0.0
    assert np.isfinite(b.grad[1])


def test_a_chain_through_a_step_has_gradient_zero(backend):
    x = tg.param([-1.5, 0.2, 3.0])
    (np.floor(x) * 2.0 + np.sign(x) + np.heaviside(x, 0.5)).backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.0]
    assert tg.grad(lambda v: elementwise.rint(v * 3.0))(0.4) == 0.0


def test_remainder_with_whole_numbers(backend):
    x = tg.param([5.5, -5.5])
    np.remainder(x, np.array([2, 3])).backward()
    np.maximum(x, np.array([2, 3])).backward()
    assert x.grad.tolist() == [2.0, 1.0]


@pytest.mark.parametrize(
    "name",
    ["maximum", "minimum", "fmax", "fmin", "remainder", "fmod", "copysign", "heaviside", "clip"],
)
def test_shapes_that_do_not_broadcast(name):
    arguments = (tg.param([1.0, 2.0]), [1.0, 2.0, 3.0])
    words = {"remainder": "mod"}.get(name, name)
    with pytest.raises(ValueError, match=rf"{words}: .*\(2,\) and \(3,\)"):
        getattr(np, name)(*arguments, *([None] * (name == "clip")))


def test_refused_arguments():
    x = tg.param([1.0, 2.0])
    with pytest.raises(TypeError, match="out="):
        np.clip(x, 0.0, 1.0, out=np.empty(2))
    with pytest.raises(TypeError, match="out="):
        np.maximum(x, 1.0, out=np.empty(2))
    with pytest.raises(TypeError, match="where"):
        np.maximum(x, 1.0, where=np.array([True, False]))
    with pytest.raises(TypeError, match="a_min"):
        elementwise.clip(x, 0.0, min=0.0)
    with pytest.raises(TypeError, match="clip: .*'a'"):
        np.clip(x, "a", 1.0)
