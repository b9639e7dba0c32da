"""What people get wrong, and what they are told: docs/sharp-bits.md shows the rest."""

import inspect
import warnings
from contextlib import contextmanager

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.recording.numpy_functions import NEAREST as WRITTEN
from tapegraph.recording.numpy_functions import is_known


@contextmanager
def warned():
    """Collect what is warned of as Python's own filters let it through: once a line."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        yield seen


def multiplied(w, factor):
    return tg.sum(w * factor), inspect.currentframe().f_lineno


def test_float64_beside_float32_is_warned_of_once_a_line():
    w = tg.param(np.ones(3), dtype="float32", name="w")
    with warned() as seen:
        for _ in range(3):
            loss, line = multiplied(w, np.ones(3))
            loss.backward()
    assert [(w.filename, w.lineno) for w in seen] == [(__file__, line)]
    text = str(seen[0].message)
    assert text.startswith("mul: received float64 of shape (3,) beside float32 'w' of shape (3,)")
    with warned() as seen:
        tg.sum(w * np.float64(2.0)).backward()
    assert "Write a Python number, float(number)" in str(seen[0].message)
    assert w.grad.dtype == np.float32 and w.grad.tolist() == [5.0, 5.0, 5.0]


@pytest.mark.parametrize(
    "loss",
    [
        lambda w: tg.sum(w * 2.0),
        lambda w: tg.sum(w * np.ones(3, np.float32)),
        lambda w: tg.sum(w.astype("float64")),
        lambda w: tg.sum(tg.param(np.ones(3)) * np.ones(3)),
        lambda w: tg.sum(w[np.array([0, 2])]),
    ],
)
def test_what_is_meant_is_not_warned_of(loss):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss(tg.param(np.ones(3), dtype="float32")).backward()


def test_float64_in_a_compiled_step_is_warned_of():
    w = tg.param(np.ones(3), dtype="float32")

    @tg.compile
    def step(x):
        loss = tg.sum(w * x)
        loss.backward()
        return loss

    with warned() as seen:
        for _ in range(4):
            step(np.ones(3))
    assert ["beside float32" in str(w.message) for w in seen] == [True]


def test_a_count_names_the_call_that_took_a_new_trace():
    step = tg.compile(lambda x, epoch: x * epoch)
    with pytest.warns(RuntimeWarning, match=r"the last for <lambda>\(x: float64\[2\], epoch=7\)"):
        for epoch in range(9):
            step(np.ones(2), epoch)


def test_a_condition_of_many_and_math():
    import math

    x = tg.param(np.ones((2, 2)))
    with pytest.raises(ValueError, match=r"bool: .* Write tg.where\(condition, a, b\)"):
        bool(x)
    with pytest.raises(ValueError, match=r"float: .* tg.sin\(x\) for math.sin\(x\)"):
        math.sin(x)


# The nearest that differentiates, as the messages say it, is NumPy's function by its numbers.
A = np.array([1.0, 2.0, 4.0])
N = np.array([1.0, np.nan, 3.0])
M = np.array([[2.0, 1.0], [1.0, 3.0]])
NEAREST = {
    np.correlate: (
        lambda x: np.convolve(x, np.conj(A)[::-1], "same"),
        lambda x: np.correlate(x, A, "same"),
        A,
    ),
    np.ediff1d: (lambda x: np.diff(np.ravel(x)), np.ediff1d, A),
    np.fix: (np.trunc, np.fix, A - 2.5),
    np.i0: (lambda x: tg.special.i0(x), np.i0, A),
    np.modf: (lambda x: x - np.trunc(x), lambda x: np.modf(x)[0], A + 0.25),
    np.nancumprod: (lambda x: np.cumprod(np.where(np.isnan(x), 1.0, x)), np.nancumprod, N),
    np.nancumsum: (lambda x: np.cumsum(np.where(np.isnan(x), 0.0, x)), np.nancumsum, N),
    np.nanprod: (lambda x: np.prod(np.where(np.isnan(x), 1.0, x)), np.nanprod, N),
    np.nanmedian: (lambda x: np.median(x[~np.isnan(N)]), np.nanmedian, N),
    np.vander: (lambda x: x[:, None] ** np.arange(3)[::-1], np.vander, A),
    np.linalg.cond: (
        lambda x: (s := np.linalg.svd(x, compute_uv=False))[0] / s[-1],
        np.linalg.cond,
        M,
    ),
    np.polyfit: (
        lambda y: np.linalg.lstsq(A[:, None] ** np.arange(3), y)[0],
        lambda y: np.polyfit(A, y, 2)[::-1],
        A**2 + 1.0,
    ),
}


@pytest.mark.filterwarnings("ignore:numpy.fix is deprecated")  # on the newest NumPy
@pytest.mark.parametrize("function", NEAREST, ids=lambda f: f.__name__)
def test_the_nearest_that_differentiates(function):
    nearest, numpys, x = NEAREST[function]
    assert function in WRITTEN
    leaf = tg.param(x)
    if not is_known(function) and function not in (np.correlate, np.polyfit):
        with pytest.raises(TypeError, match="the function has no gradient"):
            numpys(leaf)
    result = nearest(leaf)
    assert result.requires_grad
    np.testing.assert_allclose(result.numpy(), numpys(x), rtol=1e-12, atol=1e-12)
