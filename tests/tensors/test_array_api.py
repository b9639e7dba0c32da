"""The array API standard's namespace of tensors, beside its suite: `python -m tests.array_api`."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import tapegraph as tg
from tapegraph import array_api as xp

X = np.array([[3.0, -1.0, 2.0], [0.5, 4.0, -2.0]])


@pytest.mark.skipif(not hasattr(np, "unstack"), reason="NumPy 2.1 brought the last of them")
def test_every_name_of_the_standard_is_there():
    strict = pytest.importorskip("array_api_strict")
    for ours, theirs in ((xp, strict), (xp.linalg, strict.linalg), (xp.fft, strict.fft)):
        names = set(theirs.__all__) - {"ArrayAPIStrictFlags", "Device"}
        public = {name for name in names if "array_api_strict" not in name and name[0] != "_"}
        assert sorted(name for name in public if not hasattr(ours, name)) == []


def score(x):
    here = x.__array_namespace__()
    positive = here.where(here.greater(x, 0.0), x, 0.0)
    return here.sum(positive**2, axis=-1) + here.max(x, axis=-1)


def gradient_of_score(x):
    return 2.0 * np.maximum(x, 0.0) + (x == x.max(-1, keepdims=True))


def test_gradients_flow():
    x = tg.param(X)
    y = score(x)
    np.testing.assert_array_equal(y, (np.maximum(X, 0.0) ** 2).sum(-1) + X.max(-1))
    np.testing.assert_array_equal(tg.gradients(tg.sum(y), x)[0], gradient_of_score(X))


def test_it_is_the_namespace_at_every_level():
    row, direction = X[0], np.array([1.0, 2.0, 3.0])
    np.testing.assert_array_equal(tg.grad(score)(row), gradient_of_score(row))
    np.testing.assert_array_equal(
        tg.jvp(score, (row,), (direction,))[1], gradient_of_score(row) @ direction
    )
    np.testing.assert_array_equal(tg.vmap(tg.grad(score))(X), gradient_of_score(X))
    step = tg.compile(lambda x: score(x))
    for i in range(4):
        np.testing.assert_array_equal(step(X + i), score(tg.tensor(X + i)))
    assert step.traces == 1


def test_what_has_no_derivative_is_a_constant():
    x = tg.param(X)
    mask, order = xp.greater(x, 0.0), xp.argsort(x, axis=-1)
    values, counts = xp.unique_counts(tg.tensor([2.0, 1.0, 2.0]))
    for found, expected in (
        (mask, X > 0.0),
        (order, [[1, 2, 0], [2, 0, 1]]),
        (xp.all(mask), False),
        (xp.nonzero(mask)[1], [0, 2, 0, 1]),
        (values, [1.0, 2.0]),
        (counts, [1, 2]),
        (xp.arange(3), [0, 1, 2]),
        (xp.meshgrid(xp.arange(2), xp.arange(1))[0], [[0, 1]]),
        (xp.linalg.matrix_rank(tg.tensor(X)), 2),
    ):
        assert type(found) is tg.Tensor and not found.requires_grad
        np.testing.assert_array_equal(found, expected)


def test_a_set_of_what_needs_a_gradient_is_refused():
    with pytest.raises(TypeError, match="unique_values: the function has no gradient"):
        xp.unique_values(tg.param([1.0, 2.0]))


def test_asarray_keeps_the_gradient():
    x = tg.param([1.0, 2.0])
    assert xp.asarray(x) is x and xp.asarray(x, copy=False) is x
    single = xp.asarray(x, dtype=xp.float32)
    assert single.dtype == np.float32
    np.testing.assert_array_equal(tg.gradients(tg.sum(single * 3.0), x)[0], [3.0, 3.0])
    copied = xp.asarray(x, copy=True)
    assert copied is not x and copied.requires_grad
    joined = xp.asarray([x[0], 5.0, x[1]], dtype=xp.float32)
    np.testing.assert_array_equal(tg.gradients(tg.sum(joined), x)[0], [1.0, 1.0])
    plain = np.array([1, 2])
    made = xp.asarray(plain, device="cpu")
    plain[0] = 7
    np.testing.assert_array_equal(made, [1, 2])
    for options in ({"copy": False}, {"device": "cuda"}):
        with pytest.raises(ValueError, match=next(iter(options))):
            xp.asarray(plain, **options)
    with pytest.raises(ValueError, match="copy=False"):
        xp.asarray(x, dtype=xp.float32, copy=False)


@pytest.mark.parametrize("axis", [0, -1])
def test_orders_are_stable_both_ways(axis):
    x = np.array([[2.0, 1.0, 2.0, 1.0], [2.0, 3.0, 2.0, 1.0], [0.0, 1.0, 2.0, 1.0]])
    for descending, key in ((False, x), (True, -x)):
        order = np.argsort(key, axis=axis, kind="stable")
        np.testing.assert_array_equal(
            xp.argsort(tg.tensor(x), axis=axis, descending=descending), order
        )
        np.testing.assert_array_equal(
            xp.sort(tg.tensor(x), axis=axis, descending=descending),
            np.take_along_axis(x, order, axis),
        )


def test_parameters_of_the_standard():
    np.testing.assert_array_equal(xp.clip(tg.tensor(X), min=0.0), np.maximum(X, 0.0))
    frequencies = xp.fft.fftfreq(4, d=0.5, dtype=xp.float32)
    assert frequencies.dtype == np.float32
    np.testing.assert_array_equal(frequencies, [0.0, 0.5, -1.0, -0.5])
    np.testing.assert_array_equal(xp.fft.rfftfreq(4), [0.0, 0.25, 0.5])


def test_versions():
    x = tg.tensor(1.0)
    assert x.__array_namespace__(api_version=xp.__array_api_version__) is xp
    with pytest.raises(ValueError, match="1999"):
        x.__array_namespace__(api_version="1999.12")
    assert x.device == "cpu" and x.to_device("cpu") is x
    with pytest.raises(ValueError, match="to_device: received device 'cuda'"):
        x.to_device("cuda")


def test_integers_are_places_and_shift():
    two = tg.tensor(np.array(2))
    assert ["a", "b", "c"][two] == "c" and list(range(two)) == [0, 1]
    np.testing.assert_array_equal(tg.tensor(np.array([1, 2])) << two, [4, 8])
    np.testing.assert_array_equal(tg.tensor(np.array([4, 9])) >> 1, [2, 4])
    with pytest.raises(TypeError, match="integer"):
        ["a"][tg.tensor(0.0)]
    with pytest.raises(tg.ConcretizationError, match="index"):
        tg.compile(lambda i: ["a", "b"][i])(np.array(1))


def test_array_api_compat_finds_it():
    compat = pytest.importorskip("array_api_compat")
    x = tg.param(X)
    assert compat.array_namespace(x, tg.tensor(1.0)) is xp
    assert compat.device(x) == "cpu" and compat.size(x) == 6


# ------------------------------------------------------------------ other libraries


def run_with_dispatch(code):
    """Run a program in a process in which SciPy dispatches: it reads the variable as it starts."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        env={**os.environ, "SCIPY_ARRAY_API": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.thorough
def test_scipy_dispatches_to_it():
    pytest.importorskip("scipy", minversion="1.17", reason="older ones convert to arrays first")
    run_with_dispatch(
        """
        import numpy as np
        from scipy import fft, integrate, special, stats
        import tapegraph as tg

        x = tg.param([1.0, 2.0, 4.0])
        slopes = tg.jacobian(special.softmax)(np.array([1.0, 2.0, 4.0]))
        s = np.exp([1.0, 2.0, 4.0]) / np.exp([1.0, 2.0, 4.0]).sum()
        np.testing.assert_allclose(slopes, np.diag(s) - np.outer(s, s), rtol=1e-12)
        np.testing.assert_allclose(fft.rfft(x), np.fft.rfft([1.0, 2.0, 4.0]), rtol=1e-12)
        grad = tg.gradients(integrate.trapezoid(x), x)[0]
        np.testing.assert_array_equal(grad, [0.5, 1.0, 0.5])
        mean = stats.gmean(x)
        np.testing.assert_allclose(mean, 2.0, rtol=1e-12)
        np.testing.assert_allclose(tg.gradients(mean, x)[0], 2.0 / 3.0 / x, rtol=1e-12)
        try:
            special.logsumexp(x)
        except TypeError as error:
            assert "cannot be assigned" in str(error)
        else:
            raise AssertionError
        """
    )


@pytest.mark.thorough  # importing scikit-learn takes two seconds
def test_scikit_learn_dispatches_to_it():
    pytest.importorskip("sklearn")
    run_with_dispatch(
        """
        import numpy as np
        import sklearn
        from sklearn.decomposition import PCA
        import tapegraph as tg

        x = np.random.default_rng(0).normal(size=(10, 3))
        plain = PCA(2, svd_solver="full").fit_transform(x)
        with sklearn.config_context(array_api_dispatch=True):
            found = PCA(2, svd_solver="full").fit_transform(tg.param(x))
        assert found.requires_grad
        np.testing.assert_allclose(found, plain, rtol=1e-9)
        """
    )


def test_einops_takes_tensors():
    ops = pytest.importorskip("einops.array_api")
    x = np.arange(24.0).reshape(2, 3, 4)
    moved = ops.rearrange(tg.param(x), "a b c -> c (a b)")
    np.testing.assert_array_equal(moved, x.transpose(2, 0, 1).reshape(4, 6))
    slopes = tg.grad(lambda x: tg.sum(ops.reduce(x, "a b c -> a", "mean") ** 2))(x)
    expected = np.broadcast_to(2.0 * x.mean((1, 2), keepdims=True) / 12.0, x.shape)
    np.testing.assert_allclose(slopes, expected, rtol=1e-12)
    rows = tg.vmap(lambda x: ops.repeat(x, "b c -> c b r", r=2))(x)
    np.testing.assert_array_equal(rows, np.repeat(x.transpose(0, 2, 1)[..., None], 2, -1))


def test_opt_einsum_takes_tensors():
    opt_einsum = pytest.importorskip("opt_einsum")
    a, b = X, np.arange(6.0).reshape(3, 2)
    x = tg.param(a)
    found = opt_einsum.contract("ij,jk,kl->il", x, b, a)
    np.testing.assert_allclose(found, a @ b @ a, rtol=1e-12)
    expected = np.ones((2, 3)) @ (b @ a).T
    np.testing.assert_allclose(tg.gradients(tg.sum(found), x)[0], expected, rtol=1e-12)


def test_xarray_takes_tensors():
    xarray = pytest.importorskip("xarray")
    x = tg.param(X)
    table = xarray.DataArray(x, dims=("row", "column"))
    for found, slopes in (
        (table.mean("row").data, np.full((2, 3), 0.5)),
        (table.where(table > 0.0, 0.0).data, X > 0.0),
        (table.rolling(column=2).sum().isel(column=slice(1, None)).data, [[1.0, 2.0, 1.0]] * 2),
    ):
        np.testing.assert_array_equal(tg.gradients(tg.sum(found), x)[0], slopes)
