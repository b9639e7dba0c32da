"""SciPy's functions against SciPy, closed forms and differences."""

from __future__ import annotations

import numpy
import pytest

import tapegraph as tg
from tapegraph.autograd import grad, value_and_grad
from tapegraph.autograd.scipy.signal import convolve
from tapegraph.autograd.test_util import check_grads

RNG = numpy.random.default_rng(0)


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("shapes", [((6,), (4,)), ((7,), (3,)), ((5, 4), (2, 3)), ((4, 4), (4, 1))])
def test_convolutions(shapes, mode):
    signal = pytest.importorskip("scipy.signal")
    a, b = (RNG.normal(size=shape) for shape in shapes)
    numpy.testing.assert_allclose(
        convolve(a, b, mode=mode), signal.convolve(a, b, mode), rtol=1e-12
    )
    check_grads(convolve, (0, 1), order=1)(a, b, mode=mode)


def test_a_larger_second_array():
    signal = pytest.importorskip("scipy.signal")
    a, b = RNG.normal(size=3), RNG.normal(size=8)
    for mode in ("full", "same"):
        expected = signal.convolve(a, b, mode)
        numpy.testing.assert_allclose(convolve(a, b, mode=mode), expected, rtol=1e-12)
    with pytest.raises(ValueError, match="fits into"):
        convolve(a, b, mode="valid")
    with pytest.raises(ValueError, match="'full', 'same' or 'valid'"):
        convolve(a, b, mode="sideways")


def test_a_singular_covariance():
    stats = pytest.importorskip("scipy.stats")
    from tapegraph.autograd.scipy.stats import multivariate_normal as mvn

    root = RNG.normal(size=(4, 2))
    cov = root @ root.T  # of rank two
    x, mean = root @ RNG.normal(size=2), root @ RNG.normal(size=2)
    seen = []

    def logpdf(x, mean):
        value = mvn.logpdf(x, mean, cov, allow_singular=True)
        seen.append(float(value._value))
        return value

    slope = -numpy.linalg.pinv(cov) @ (x - mean)
    for argnum, sign in ((0, 1.0), (1, -1.0)):
        numpy.testing.assert_allclose(grad(logpdf, argnum)(x, mean), sign * slope, rtol=1e-8)
    expected = stats.multivariate_normal.logpdf(x, mean, cov, allow_singular=True)
    assert seen == pytest.approx([expected] * 2)
    grad(logpdf)(x + numpy.array([1.0, 0.0, 0.0, 0.0]), mean)
    assert seen[-1] == -numpy.inf  # the density is zero outside of the plane
    with pytest.raises(NotImplementedError, match="traced cov"):
        grad(lambda c: mvn.logpdf(x, mean, c, allow_singular=True))(cov)


@pytest.mark.parametrize("x", [[1.0, 2.0], [1e3, 1e3], [-numpy.inf, 2.0], [-numpy.inf] * 2])
def test_a_weighted_logarithm_of_a_sum_of_exponentials(x):
    scipy = pytest.importorskip("scipy.special")
    from tapegraph.autograd.scipy.special import logsumexp

    x, weights = numpy.array(x), numpy.array([1.0, 2.0])
    value, slope = value_and_grad(lambda x: logsumexp(x, b=weights))(x)
    expected = scipy.logsumexp(x, b=weights)
    numpy.testing.assert_allclose(value, expected, rtol=1e-14)
    if numpy.isfinite(expected):
        numpy.testing.assert_allclose(slope, weights * numpy.exp(x - expected), rtol=1e-12)


def test_plain_arrays_of_vmap_and_of_a_compiled_step_are_refused():
    pytest.importorskip("scipy.linalg")
    from tapegraph.autograd.scipy.linalg import expm

    total, matrices = (lambda a: numpy.sum(expm(a))), RNG.normal(size=(2, 3, 3))
    fix = r"^scipy\.linalg\.expm: .* tg\.vmap .* np\.stack\(\[f\(x\) for x in xs\]\), or"
    of_all = tg.grad(lambda x: tg.vmap(total)(x)[0])
    for mapped in (tg.vmap(total), tg.vmap(tg.grad(total)), of_all):
        with pytest.raises(tg.ConcretizationError, match=fix):
            mapped(matrices)
    with pytest.raises(tg.ConcretizationError, match=r"of tapegraph\.autograd\.scipy are, use tg"):
        tg.compile(total)(matrices[0])


def test_scipys_modules_are_attributes_of_the_package(run_python):
    done = run_python("import tapegraph.autograd.scipy as s; print(s.stats.norm, s.linalg.expm)")
    assert done.returncode == 0, done.stderr
