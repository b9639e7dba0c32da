"""Primitives that are linear, differentiated three times: their rules may give plain arrays."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import tapegraph as tg
import tapegraph.autograd.numpy as anp
from tapegraph import autograd
from tapegraph.autograd.core import def_linear
from tapegraph.autograd.extend import defvjp, primitive
from tests.quick import check_product

A = np.array([[1.0, 2.0], [3.0, 4.0]])
X, T = np.array([0.5, 1.5]), np.array([1.0, 2.0])


@primitive
def times(x):
    return A @ x


@primitive
def transposed(x):
    return A.T @ x


@primitive
def product(x, y):
    return x * y


defvjp(times, lambda ans, x: lambda g: transposed(g))
defvjp(transposed, lambda ans, x: lambda g: times(g))
defvjp(
    product,
    lambda ans, x, y: lambda g: product(g, y),
    lambda ans, x, y: lambda g: product(x, g),
)
for linear in (times, transposed, product):
    def_linear(linear)


def along(gradient):
    return lambda f: lambda x: anp.sum(gradient(f)(x) * T)


# The derivative along T.
MODES = {
    "grad": along(autograd.grad),
    "forward": lambda f: lambda x: autograd.make_jvp(f)(x)(T)[1],
    "checkpoint": lambda f: along(autograd.grad)(autograd.checkpoint(f)),
    "tg.grad": along(tg.grad),
    "tg.jvp": lambda f: lambda x: tg.jvp(f, (x,), (T,))[1],
}
FUNCTIONS = {
    "times cubed": (lambda x: anp.sum(times(x) ** 3), 6 * np.sum((A @ T) ** 3)),
    "a cube": (lambda x: anp.sum(product(product(x, x), x)), 6 * np.sum(T**3)),
    "times": (lambda x: anp.sum(times(x)), 0.0),
    "by a constant": (lambda x: anp.sum(product(x, np.ones(2))), 0.0),
}


@pytest.mark.parametrize("outermost", MODES)
@pytest.mark.one_in(2)
def test_the_third_derivative_of_a_linear_primitive(outermost):
    check_product(third_derivative_is_known, [outermost], MODES, MODES)


def third_derivative_is_known(*modes):
    for f, wanted in FUNCTIONS.values():
        derivative = f
        for mode in reversed(modes):
            derivative = MODES[mode](derivative)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Output seems independent", UserWarning)
            assert float(derivative(X)) == pytest.approx(wanted, rel=1e-12)
