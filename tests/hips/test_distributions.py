"""Distributions on traced values are SciPy's at every edge: of the support and of the parameters.

The values are compared with SciPy's own, the gradients with differences of it.
"""

from __future__ import annotations

import importlib
import itertools

import numpy
import pytest
from optional import optional

from tapegraph.autograd import grad, jacobian, make_jvp, make_vjp, value_and_grad
from tests.quick import in_one

stats = optional("scipy.stats")
scipy = importlib.import_module("scipy")
OLD_SCIPY = tuple(map(int, scipy.__version__.split(".")[:2])) < (1, 14)

INF, NAN = numpy.inf, numpy.nan
PLACES = (-INF, -2.0, -0.5, -1e-300, 0.0, 1e-300, 0.3, 0.5, 1.0, 1.7, 2.0, 3.0, 40.0, INF, NAN)
SHAPES = (-1.0, 0.0, 0.5, 1.0, 2.0, 7.3, NAN)
LOCATIONS = ((0.0, 1.0), (1.0, 1.0), (-0.7, 0.5), (0.0, 0.0), (0.0, -1.0), (0.3, NAN), (NAN, 1.0))
# The distribution, its functions, which shape parameters are tried, and by which it has derivatives
# in its distribution function.
CONTINUOUS = [
    ("norm", ("logpdf", "pdf", "cdf", "sf", "logcdf", "logsf"), ()),
    ("gamma", ("logpdf", "pdf", "cdf"), (SHAPES,)),
    ("chi2", ("logpdf", "pdf", "cdf"), (SHAPES,)),
    ("beta", ("logpdf", "pdf", "cdf"), (SHAPES, SHAPES[1:])),
    ("t", ("logpdf", "pdf", "cdf", "logcdf"), ((*SHAPES, 1e9, INF),)),
]
COUNTS = (-INF, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 2.5, 30.0, NAN)
MEANS = (-1.0, 0.0, 1e-3, 2.5, 40.0, NAN)
CASES = [
    (name, function, [PLACES, *shapes, LOCATIONS])
    for name, functions, shapes in CONTINUOUS
    for function in functions
] + [
    ("poisson", f, [COUNTS, MEANS, ((0.0,), (1.0,), (0.5,), (NAN,))])
    for f in ("logpmf", "pmf", "cdf")
]


def ours(name):
    return importlib.import_module(f"tapegraph.autograd.scipy.stats.{name}")


def grid(axes):
    """The product of the axes, of which the last has tuples: an array an argument."""
    rows = [(*row[:-1], *row[-1]) for row in itertools.product(*axes)]
    return [numpy.array(column) for column in zip(*rows, strict=True)]


def wanted(name, function, args):
    """By which arguments the function has derivatives."""
    if name == "poisson":
        return [1]
    if function in ("cdf", "logcdf") and name != "norm":
        return [0, len(args) - 2, len(args) - 1]
    return range(len(args))


@pytest.mark.one_in(2, start=1)
@pytest.mark.parametrize(
    ("name", "function", "axes"), CASES, ids=[f"{name}-{function}" for name, function, _ in CASES]
)
def test_edges(name, function, axes):
    args = grid(axes)
    f, of_scipy = getattr(ours(name), function), getattr(getattr(stats, name), function)
    if name == "poisson" and function == "cdf" and OLD_SCIPY:
        pytest.skip("SciPy 1.13 gives NaN at infinity; to be struck with the oldest SciPy allowed")
    with numpy.errstate(all="ignore"):
        expected = of_scipy(*args)
        for argnum in wanted(name, function, args):
            vjp, value = make_vjp(f, argnum)(*args)
            numpy.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-12)
            found = vjp(numpy.ones_like(value))
            check_slopes(found, of_scipy, args, argnum, expected)
            if argnum > 0 and argnum != len(args) - 2:  # no optimum for who looks at it alone
                refused = args[argnum] < 0
                assert numpy.isnan(expected[refused]).all() and numpy.isnan(found[refused]).all()
            forward = make_jvp(f, argnum)(*args)(numpy.ones_like(value))
            numpy.testing.assert_allclose(forward[0], value, rtol=1e-14)
            finite = numpy.isfinite(numpy.sum(args, axis=0)) & (abs(value) < 1e100)
            numpy.testing.assert_allclose(forward[1][finite], found[finite], rtol=1e-12, atol=1e-15)


def check_slopes(found, f, args, argnum, value):
    """Compare with differences where SciPy's function is smooth, or constant."""
    h = 1e-5
    a, b, c, d = (
        f(*(x + k * h if i == argnum else x for i, x in enumerate(args))) for k in (-2, -1, 1, 2)
    )
    around = [f(args[0] + k * h, *args[1:]) for k in (-1, 1)]  # not at a bound
    constant = numpy.logical_and.reduce([part == value for part in (a, b, c, d, *around)])
    finite = numpy.isfinite(numpy.sum(args, axis=0))
    constant &= numpy.where(finite, value < INF, numpy.isfinite(value))
    numpy.testing.assert_allclose(found[constant], 0.0, atol=1e-12)
    slope = (8 * (c - b) - (d - a)) / (12 * h)
    # Where the sides disagree there is a bound or a jump between them.
    bend = abs((c - value) / h - (value - b) / h)
    smooth = (abs(slope) < 1e100) & (bend < 0.01 * abs(slope))
    assert smooth.sum() > 10
    numpy.testing.assert_allclose(found[smooth], slope[smooth], rtol=1e-4, atol=1e-6)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", [name for name, *_ in CONTINUOUS])
def test_numbers_outside_of_the_support(name):
    shapes = [2.0] * (2 if name == "beta" else 0 if name == "norm" else 1)
    module, of_scipy = ours(name), getattr(stats, name)
    for x in (-INF, -0.5, 1.5, INF):
        value, found = value_and_grad(module.cdf)(x, *shapes)
        assert value == pytest.approx(of_scipy.cdf(x, *shapes), rel=1e-12)
        assert numpy.isfinite(found)
        value, found = value_and_grad(module.pdf)(min(x, 1e9), *shapes)
        assert value == pytest.approx(of_scipy.pdf(min(x, 1e9), *shapes), rel=1e-12)
        assert found == 0.0 or value > 0.0


def test_a_gradient_of_one_parameter_knows_of_places_outside():
    # The sum of log-densities: those outside are constant, and the others' gradient is theirs.
    x = numpy.array([-1.0, 0.5, 2.0])
    found = grad(lambda a: numpy.sum(ours("gamma").logpdf(x, a)[1:]))(2.0)
    psi = pytest.importorskip("scipy.special").digamma(2.0)
    assert found == pytest.approx(numpy.log(0.5) + numpy.log(2.0) - 2 * psi)


def test_a_compiled_step_has_the_edges_too():
    import tapegraph as tg

    gamma = ours("gamma")
    step = tg.compile(tg.value_and_grad(lambda x, a: numpy.sum(gamma.pdf(x, a))))
    for shift in (0.0, 1.0, 2.0, 3.0):
        x, a = numpy.array([-1.5 + shift, 0.5, 2.0]), numpy.array([2.0, 1.5, 3.0])
        value, gradient = step(x, a)
        density = stats.gamma.pdf(x, a)
        assert float(value) == pytest.approx(density.sum())
        slope = numpy.where(x < 0, 0.0, ((a - 1) / x - 1) * density)
        numpy.testing.assert_allclose(numpy.asarray(gradient), slope, rtol=1e-9)
    assert numpy.isnan(float(step(x, -a)[0]))


# Distributions of vectors


def dirichlet_points():
    yield [0.2, 0.3, 0.5], [1.0, 2.0, 3.0]
    yield [0.2, 0.3], [1.0, 2.0, 3.0]  # the last is what is left
    yield [[0.2, 0.1], [0.3, 0.6], [0.5, 0.3]], [1.0, 2.0, 0.5]
    yield [[0.2, 0.1], [0.3, 0.6]], [1.5, 2.0, 0.5]
    yield [0.0, 0.5, 0.5], [1.0, 2.0, 3.0]
    yield [0.0, 1.0], [1.5, 1.0, 2.0]
    yield [0.2, 0.3, 0.6], [1.0, 2.0, 3.0]  # refused, from here on
    yield [0.2, -0.1, 0.9], [1.0, 2.0, 3.0]
    yield [0.0, 0.5, 0.5], [0.5, 2.0, 3.0]
    yield [0.2, 0.3, 0.5], [1.0, 0.0, 3.0]
    yield [0.2, 0.3, 0.5], [1.0, -1.0, 3.0]
    yield [0.2, 0.3, 0.5], [1.0, 2.0]
    yield [1.2, -0.2], [1.0, 2.0]


@in_one(("x", "alpha"), [*dirichlet_points()])
@in_one("function", ["logpdf", "pdf"])
def test_dirichlet(x, alpha, function):
    f, of_scipy = getattr(ours("dirichlet"), function), getattr(stats.dirichlet, function)
    x, alpha = numpy.array(x), numpy.array(alpha)
    try:
        with numpy.errstate(all="ignore"):
            expected = of_scipy(x, alpha)
    except ValueError as error:
        for argnum in (0, 1):
            with pytest.raises(ValueError, match=r"^dirichlet\.logpdf: .*\(at ") as found:
                jacobian(f, argnum)(x, alpha)
            assert str(error)[:30] in str(found.value)
        return
    for argnum in (0, 1):
        _, value = make_vjp(f, argnum)(x, alpha)
        numpy.testing.assert_allclose(value, expected, rtol=1e-12)
        assert numpy.shape(value) == numpy.shape(expected)
    if numpy.min(x) > 0:
        found = jacobian(f, 1)(x, alpha)
        for i in range(alpha.size):
            h = 1e-6 * numpy.eye(alpha.size)[i]
            slope = (of_scipy(x, alpha + h) - of_scipy(x, alpha - h)) / 2e-6
            numpy.testing.assert_allclose(found[..., i], slope, rtol=1e-6)


C = numpy.array([[2.0, 0.3, 0.1], [0.3, 1.0, -0.2], [0.1, -0.2, 0.7]])
V = numpy.array([0.3, -0.4, 1.2])
NORMAL_POINTS = [
    (V, 0 * V, C),
    (V[None], V / 2, C),  # one row is squeezed away
    (numpy.stack([V, 2 * V]), V / 2, C),
    (numpy.stack([V, 2 * V])[:, None], V / 2, C),
    (V, None, C),
    (V, V / 3, 2.5),
    (V, V / 3, numpy.array([1.0, 2.0, 0.5])),
    (V, 0.5, 2.0),  # three numbers of one dimension
    (0.3, 0.5, 2.0),
    (V[0], V[:1], C[:1, :1]),
    (INF * V, 0 * V, C),
    (V, 0 * V, -C),  # refused, from here on
    (V, 0 * V, C - 1.5 * numpy.eye(3)),
    (V, 0 * V, numpy.outer(V, V)),
    (V, 0 * V, 0 * C),
    (V, 0 * V, NAN * C),
    (V, 0 * V, C[:2]),
    (V, 0 * V, C[:2, :2]),
    (V, 0.0, C),
    (V[:2], 0 * V, C),
    (V, 0 * V, numpy.stack([C, C])),
    (V, 0.5, -2.0),
    (V, 0.5, 0.0),
]


@in_one("place", range(len(NORMAL_POINTS)))
@in_one("function", ["logpdf", "pdf"])
def test_multivariate_normal(place, function):
    args = NORMAL_POINTS[place]
    f = getattr(ours("multivariate_normal"), function)
    of_scipy = getattr(stats.multivariate_normal, function)
    argnums = [i for i, x in enumerate(args) if x is not None]
    try:
        with numpy.errstate(all="ignore"):
            expected = of_scipy(*args)
    except ValueError as error:
        for argnum in argnums:
            with pytest.raises(
                type(error), match=r"^multivariate_normal\.logpdf: .*\(at "
            ) as found:
                jacobian(f, argnum)(*args)
            assert str(error)[:30] in str(found.value)
        assert place > 10
        return
    for argnum in argnums:
        with numpy.errstate(all="ignore"):
            _, value = make_vjp(f, argnum)(*args)
        numpy.testing.assert_allclose(value, expected, rtol=1e-12)
        assert numpy.shape(value) == numpy.shape(expected)


def test_a_covariance_that_is_not_symmetric_is_refused():
    mvn = ours("multivariate_normal")
    lower = numpy.tril(C)
    with pytest.raises(ValueError, match="cov that is not symmetric.*0.5 "):
        grad(lambda x: mvn.logpdf(x, V, lower))(V)
    with pytest.raises(ValueError, match="cov that is not symmetric"):
        grad(lambda c: mvn.entropy(V, c))(lower)


def test_entropy_of_a_normal():
    mvn = ours("multivariate_normal")
    for mean in (V, None):
        value, found = value_and_grad(mvn.entropy, 1)(mean, C)
        assert value == pytest.approx(stats.multivariate_normal.entropy(mean, C))
        numpy.testing.assert_allclose(found, 0.5 * numpy.linalg.inv(C), rtol=1e-12)
    with pytest.raises(ValueError, match="positive definite"):
        grad(lambda c: mvn.entropy(V, c))(numpy.outer(V, V))
