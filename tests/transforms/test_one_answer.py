"""Every mode gives one answer: of code under `no_grad`, of random functions, at singular points."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest

import tapegraph as tg
from tapegraph import autograd
from tapegraph.autograd import core
from tapegraph.autograd.extend import defjvp, defvjp, primitive
from tests.quick import in_one

# ------------------------------------------------------------------ no_grad: constants


def half_constant(x):
    """x times x squared, of which the square is a constant: the derivative is x squared."""
    with tg.no_grad():
        square = x * x
    return x * square


FIRST = {
    "grad": lambda f, x: tg.grad(f)(x),
    "value_and_grad": lambda f, x: tg.value_and_grad(f)(x)[1],
    "vjp": lambda f, x: tg.vjp(f, x)[1](1.0),
    "jvp": lambda f, x: tg.jvp(f, (x,), (1.0,))[1],
    "forward": lambda f, x: tg.jacobian(f, mode="forward")(x),
    "reverse": lambda f, x: tg.jacobian(f, mode="reverse")(x),
    "jacobian": lambda f, x: tg.jacobian(f)(x),
    "elementwise_grad": lambda f, x: tg.elementwise_grad(f)(x),
    "dual": lambda f, x: float(f(tg.Dual(x, 1.0)).tangent),
    "the drop-in's grad": lambda f, x: autograd.grad(f)(x),
    "the drop-in's deriv": lambda f, x: autograd.deriv(f)(x),
    "the drop-in's jvp": lambda f, x: core.make_jvp(f, x)(1.0)[1],
}
SECOND = {
    "hessian": lambda f, x: tg.hessian(f)(x),
    "hvp": lambda f, x: tg.hvp(f, (x,), (1.0,)),
    "reverse reverse": lambda f, x: tg.grad(tg.grad(f))(x),
    "forward reverse": lambda f, x: tg.jvp(tg.grad(f), (x,), (1.0,))[1],
    "reverse forward": lambda f, x: tg.grad(lambda y: tg.jvp(f, (y,), (1.0,))[1])(x),
    "forward forward": lambda f, x: tg.jvp(lambda y: tg.jvp(f, (y,), (1.0,))[1], (x,), (1.0,))[1],
}


TRANSFORMS = [mode for mode in (*FIRST, *SECOND) if mode != "dual"]


@pytest.mark.parametrize("mode", FIRST)
def test_what_is_computed_under_no_grad_is_a_constant(mode, backend):
    assert FIRST[mode](half_constant, 3.0) == 9.0
    assert FIRST[mode](lambda x: half_constant(x) - 9.0 * x, 3.0) == 0.0


def test_no_grad_in_a_checkpoint_gives_a_constant():
    assert tg.grad(tg.checkpoint(half_constant))(3.0) == 9.0
    assert tg.jvp(tg.checkpoint(half_constant), (3.0,), (1.0,))[1] == 9.0


@pytest.mark.parametrize("mode", SECOND)
def test_a_constant_is_one_to_the_second_order_too(mode, backend):
    # x y z with y = x + x^2 a constant in part: 3 x^2 + 2 x c of x^3 + x^2 c, with c = x^2.
    assert SECOND[mode](half_constant, 3.0) == 0.0
    assert SECOND[mode](lambda x: x**3 + x * half_constant(x), 3.0) == 18.0 + 2 * 9.0


@pytest.mark.parametrize("mode", TRANSFORMS)
def test_a_derivative_that_is_taken_under_no_grad_is_taken(mode, backend):
    with tg.no_grad():
        assert (FIRST | SECOND)[mode](lambda x: x**3, 3.0) == (27.0 if mode in FIRST else 18.0)


@in_one("outer", ["grad", "jvp"])
@in_one("inner", TRANSFORMS)
def test_an_inner_derivative_under_no_grad_is_a_constant(outer, inner):
    def f(x):
        with tg.no_grad():
            slope = (FIRST | SECOND)[inner](lambda y: y**3 * x, x)
        return slope * x

    wanted = 3.0 * 4 * 2 if inner in FIRST else 6.0 * 2 * 2
    assert FIRST[outer](f, 2.0) == wanted


def test_a_primitive_under_no_grad_is_a_constant():
    @primitive
    def cube(x):
        return x**3

    defvjp(cube, lambda ans, x: lambda g: 3 * g * x**2)
    defjvp(cube, lambda g, ans, x: 3 * g * x**2)
    f = tg.no_grad(cube)
    for mode in ("grad", "jvp", "the drop-in's jvp"):
        assert FIRST[mode](lambda x: x * f(x), 2.0) == 8.0


# ------------------------------------------------------------------ random functions draw once


def noisy(x):
    """Four numbers of two, each times another that is drawn; the matrix is read off the values."""
    return tg.concat([x, 2.0 * x]) * tg.random.normal(size=4)


def expected(seed, x):
    scale = np.random.default_rng(seed).normal(size=4)
    return np.concatenate([np.eye(2), 2.0 * np.eye(2)]) * scale[:, None]


@pytest.mark.parametrize("mode", ["forward", "reverse", None])
def test_a_random_function_draws_once_in_a_jacobian(mode, backend):
    tg.random.seed(3)
    found = tg.jacobian(noisy, mode=mode)(np.array([0.5, -1.5]))
    after = tg.random.uniform(size=3)
    np.testing.assert_allclose(found, expected(3, 2), rtol=1e-14)
    tg.random.seed(3)
    noisy(np.zeros(2))
    np.testing.assert_array_equal(after, tg.random.uniform(size=3))


@pytest.mark.parametrize("mode", ["forward", "reverse", None])
def test_a_jacobian_of_dropout_is_of_one_mask(mode):
    def f(x):
        return tg.dropout(tg.concat([x, x, x]), 0.5)

    tg.random.seed(5)
    found = tg.jacobian(f, mode=mode)(np.ones(4))
    tg.random.seed(5)
    value = f(np.ones(4)).data
    np.testing.assert_array_equal(found, np.concatenate([np.eye(4)] * 3) * value[:, None])


@pytest.mark.parametrize("mode", ["forward", None])
def test_all_sorts_of_draws_are_repeated(mode):
    def f(x):
        order = tg.random.permutation(3)
        scale = tg.random.uniform(1.0, 2.0, size=3)
        scale *= tg.random.integers(1, 9, size=3)  # an array of the function's own
        return tg.concat([x[order] * scale, x * tg.random.dropout_mask(3, 0.5)])

    tg.random.seed(9)
    found = tg.jacobian(f, mode=mode)(np.ones(3))
    tg.random.seed(9)
    np.testing.assert_array_equal(found.sum(axis=1), f(np.ones(3)).data)


def test_a_jacobian_in_a_random_function_is_of_its_own_draws():
    def outer(x):
        scale = tg.random.normal(size=2)
        inner = tg.jacobian(lambda y: noisy(y) * tg.sum(y), mode="forward")(x)
        return tg.concat([tg.sum(inner, axis=1), scale * x])

    tg.random.seed(1)
    found = tg.jacobian(outer, mode="forward")(np.array([0.5, 2.0]))
    after = tg.random.uniform()
    tg.random.seed(1)
    wanted = tg.jacobian(outer, mode="reverse")(np.array([0.5, 2.0]))
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert after == tg.random.uniform()


def test_a_compiled_jacobian_of_a_random_function_draws_once_a_call():
    step = tg.compile(lambda x: tg.jacobian(noisy, mode="forward")(x))
    tg.random.seed(4)
    found = [step(np.array([0.5, 1.5])) for _ in range(4)]
    scales = np.random.default_rng(4).normal(size=(4, 4))
    for jacobian, scale in zip(found, scales, strict=True):
        wanted = np.concatenate([np.eye(2), 2.0 * np.eye(2)]) * scale[:, None]
        np.testing.assert_allclose(np.asarray(jacobian), wanted, rtol=1e-14)


def test_hessians_of_random_functions_draw_once(backend):
    def f(x):
        scale = tg.random.normal(size=3)
        return tg.sum(scale * x**2) * tg.sum(x)

    x = np.array([0.5, -1.0, 2.0])
    scale = np.random.default_rng(2).normal(size=3)
    pair = np.add.outer(2 * scale * x, 2 * scale * x)
    wanted = pair + np.diag(2 * scale * x.sum())
    tg.random.seed(2)
    np.testing.assert_allclose(tg.hessian(f)(x), wanted, rtol=1e-12)
    after = tg.random.uniform()
    tg.random.seed(2)
    np.testing.assert_allclose(tg.hvp(f, (x,), (np.ones(3),)), wanted.sum(axis=1), rtol=1e-12)
    assert after == tg.random.uniform()


def test_a_jacobian_is_of_one_run():
    other, again = np.random.default_rng(0), np.random.default_rng(0)
    found = tg.jacobian(lambda x: x * other.normal(size=2), mode="forward")(np.ones(2))
    np.testing.assert_array_equal(found, np.diag(again.normal(size=2)))


# ------------------------------------------------------------------ dtypes


@pytest.mark.parametrize("mode", ["forward", "reverse", None])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("given", [np.float32, np.float64, np.int64])
def test_a_jacobian_has_the_dtype_of_the_argument_in_every_mode(mode, wide, given):
    to = np.float64 if wide else np.float32
    kind = np.float64 if given is np.int64 else given
    x = np.array([1, 2, 3], given)
    for length in (1, 7):  # a constant one, and fewer and more results than elements
        for f in (lambda x: 2.0 * x[:2].astype(to), lambda x: np.ones(length, to)):  # noqa: B023
            found = tg.jacobian(f, mode=mode)(x)
            assert found.dtype == kind
    assert tg.jacobian(lambda x: tg.sum(x).astype(to), mode=mode)(x).dtype == kind


# ------------------------------------------------------------------ singular points


def derivatives(order):
    forward, reverse = FIRST["jvp"], FIRST["grad"]
    for modes in itertools.product([forward, reverse], repeat=order):

        def derivative(f, modes=modes):
            for mode in modes:
                f = functools.partial(mode, f)
            return f

        yield derivative


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.one_in(3, of="tensorflow", start=2)
def test_every_mode_gives_the_derivatives_of_a_cube_root_at_zero(order, backend, thorough):
    """Those of the piece to the right, as of sqrt, and of the power 1/3."""
    if (order, backend) == (3, "tensorflow") and not thorough:
        return  # many graphs, of which the second order has the same rows
    wanted = [math.inf, -math.inf, math.inf][order - 1]
    with np.errstate(all="ignore"):
        for derivative in derivatives(order):
            assert derivative(np.cbrt)(0.0) == wanted
            if backend == "native":  # TensorFlow leaves out the + 0.0 that takes the sign off
                assert derivative(np.cbrt)(-0.0) == wanted
            assert derivative(lambda x: x ** (1 / 3))(0.0) == wanted
            assert derivative(np.sqrt)(0.0) == wanted
            assert derivative(lambda x: tg.where(x > 0, np.cbrt(x), 0.0))(0.0) == 0.0
            slope = [1 / 3, -2 / 9, 10 / 27][order - 1]
            for x in (8.0, -8.0):
                found = derivative(np.cbrt)(x)
                assert found == pytest.approx(slope * np.cbrt(x) ** (1 - 3 * order), rel=1e-12)
