"""autograd-gamma's functions, whose source distribution has no tests, against SciPy's differences.

Run by ``python -m tests.clients`` with autograd and with the drop-in under that name.
"""

import autograd.numpy as np
import autograd_gamma
import numpy
import pytest
import scipy.special
from autograd import elementwise_grad, grad, hessian, jacobian, value_and_grad

# By name: SciPy's function, and arguments inside of its domain.
FUNCTIONS = {
    "gamma": (scipy.special.gamma, (2.3,)),
    "beta": (scipy.special.beta, (2.3, 0.8)),
    "gammainc": (scipy.special.gammainc, (2.3, 1.7)),
    "gammaincc": (scipy.special.gammaincc, (2.3, 1.7)),
    "gammaincln": (lambda a, x: numpy.log(scipy.special.gammainc(a, x)), (2.3, 1.7)),
    "gammainccln": (lambda a, x: numpy.log(scipy.special.gammaincc(a, x)), (2.3, 1.7)),
    "gammaincinv": (scipy.special.gammaincinv, (2.3, 0.4)),
    "gammainccinv": (scipy.special.gammainccinv, (2.3, 0.4)),
    "betainc": (scipy.special.betainc, (2.3, 0.8, 0.6)),
    "betaincinv": (scipy.special.betaincinv, (2.3, 0.8, 0.6)),
    "betaincln": (lambda a, b, x: numpy.log(scipy.special.betainc(a, b, x)), (2.3, 0.8, 0.6)),
}
PLACES = [(name, i) for name, (_, args) in FUNCTIONS.items() for i in range(len(args))]


def difference(f, args, place, step=1e-5):
    """The central difference of fourth order by one argument."""

    def at(k):
        moved = list(args)
        moved[place] = moved[place] + k * step
        return f(*moved)

    return (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step)


def traced(name):
    # Its gamma is SciPy's; the differentiable one is autograd's.
    if name == "gamma":
        from autograd.scipy.special import gamma

        return gamma
    return getattr(autograd_gamma, name)


@pytest.mark.parametrize(("name", "place"), PLACES)
def test_gradient(name, place):
    f, args = FUNCTIONS[name]
    value, found = value_and_grad(traced(name), place)(*args)
    assert value == pytest.approx(f(*args), rel=1e-12)
    assert found == pytest.approx(difference(f, args, place), rel=1e-6)


@pytest.mark.parametrize(("name", "place"), PLACES)
def test_arrays_and_broadcasting(name, place):
    f, args = FUNCTIONS[name]
    scales = numpy.array([[0.9, 1.0], [1.1, 1.2]])
    args = [x * scales if i == place else x for i, x in enumerate(args)]
    found = elementwise_grad(traced(name), place)(*args)
    numpy.testing.assert_allclose(found, difference(f, args, place), rtol=1e-6)
    if len(args) > 1:  # the other arguments are numbers, to which the array's sum comes back
        other = (place + 1) % len(args)
        total = grad(lambda *args: np.sum(traced(name)(*args)), other)(*args)
        assert total == pytest.approx(difference(f, args, other).sum(), rel=1e-6)


@pytest.mark.parametrize("name", ["gammainc", "gammaincc", "gammaincln", "gammainccln"])
def test_second_derivative(name):
    f, (a, x) = FUNCTIONS[name]
    found = grad(grad(traced(name), 1), 1)(a, x)
    expected = difference(lambda x: difference(f, (a, x), 1, 1e-3), (x,), 0, 1e-3)
    assert found == pytest.approx(expected, rel=1e-5)


def test_likelihood():
    """A gamma likelihood with censored times, as survival analysis has it."""
    times = numpy.array([0.3, 1.1, 2.5, 4.0])
    seen = numpy.array([1.0, 1.0, 0.0, 0.0])

    def loss(p, log=np.log, survival=None):
        survival = survival or autograd_gamma.gammainccln
        a, rate = p[0], p[1]
        logpdf = a * log(rate) + (a - 1) * log(times) - rate * times
        return -np.sum(seen * logpdf + (1 - seen) * survival(a, rate * times))

    def plain(p):
        return loss(p, numpy.log, FUNCTIONS["gammainccln"][0])

    p = numpy.array([1.7, 0.9])
    units = numpy.eye(2)
    expected = [difference(lambda t, u=u: plain(p + t * u), (0.0,), 0, 1e-4) for u in units]
    numpy.testing.assert_allclose(grad(loss)(p), expected, rtol=1e-6)
    numpy.testing.assert_allclose(jacobian(loss)(p), expected, rtol=1e-6)

    def slope(p):
        return numpy.array(
            [difference(lambda t, u=u: plain(p + t * u), (0.0,), 0, 1e-3) for u in units]
        )

    second = [difference(lambda t, u=u: slope(p + t * u), (0.0,), 0, 1e-3) for u in units]
    numpy.testing.assert_allclose(hessian(loss)(p), second, rtol=1e-3)
