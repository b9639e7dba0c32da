"""`linearize`, `stop_gradient`, `jacfwd` and `jacrev`, against closed forms and `jvp`."""

from __future__ import annotations

import numpy as np
import pytest

import tapegraph as tg

X = np.array([0.5, 1.0, 2.0])
T = np.array([1.0, -2.0, 0.25])


def test_derivative_along_directions(backend):
    value, derivative = tg.linearize(lambda x: np.sin(x) * x, X)
    slope = np.cos(X) * X + np.sin(X)
    np.testing.assert_allclose(value, np.sin(X) * X, rtol=1e-15)
    for t in (T, np.zeros(3), 3 * T):
        found = derivative(t)
        assert type(found) is np.ndarray
        np.testing.assert_allclose(found, slope * t, rtol=1e-14)


def test_function_runs_once():
    runs = []

    def f(x):
        runs.append(1)
        return x**3

    _, derivative = tg.linearize(f, 2.0)
    assert [derivative(1.0), derivative(0.5)] == [12.0, 6.0]
    assert runs == [1]


def test_trees_and_several_arguments(backend):
    value, derivative = tg.linearize(
        lambda p, y: {"scaled": p["w"] * y, "sum": (tg.sum(p["w"]), y**2)}, {"w": X}, 3.0
    )
    assert value["sum"] == (3.5, 9.0)
    found = derivative({"w": T}, 10.0)
    np.testing.assert_allclose(found["scaled"], T * 3.0 + X * 10.0, rtol=1e-15)
    assert found["sum"] == (T.sum(), 60.0)


@pytest.mark.parametrize("f", [lambda z: z**2 * (1 + 2j), np.conj, lambda z: abs(z)])
def test_complex_numbers(f):
    z, t = np.array([1 + 2j, -0.5j]), np.array([1j, 2 - 1j])
    _, derivative = tg.linearize(f, z)
    np.testing.assert_allclose(derivative(t), tg.jvp(f, (z,), (t,))[1], rtol=1e-14)


def test_infinite_slopes_stay():
    _, derivative = tg.linearize(np.sqrt, 0.0)
    assert (derivative(1.0), derivative(0.0)) == (np.inf, 0.0)


def test_value_that_does_not_depend_on_the_argument():
    assert tg.linearize(lambda x: 3.0, 2.0)[1](1.0) == 0.0


def test_gradients_of_the_derivative(backend):
    w = tg.param(X)
    _, derivative = tg.linearize(lambda x: x**2 * w, T)
    derivative(X).sum().backward()
    np.testing.assert_allclose(w.grad, 2 * T * X, rtol=1e-15)
    cube = lambda x: tg.linearize(lambda y: y**3, x)[1](1.0)  # noqa: E731
    assert tg.grad(cube)(2.0) == 12.0
    assert tg.jvp(cube, (2.0,), (1.0,)) == (12.0, 12.0)
    np.testing.assert_array_equal(tg.vmap(cube)(X), 3 * X**2)


def test_in_a_compiled_step(backend):
    step = tg.compile(lambda x: tg.linearize(lambda y: tg.sum(y**3), x)[1](x))
    for scale in (1.0, 2.0, 3.0, 4.0):
        np.testing.assert_allclose(step(scale * X).numpy(), 3 * np.sum((scale * X) ** 3))


def test_tangent_of_another_structure():
    _, derivative = tg.linearize(lambda x: x, {"a": 1.0})
    with pytest.raises(ValueError, match="structure"):
        derivative({"b": 1.0})


# ------------------------------------------------------------------ stop_gradient


def stopped(x):
    return x * tg.stop_gradient(x)


def test_no_derivative_flows(backend):
    assert tg.grad(stopped)(3.0) == 3.0
    assert tg.grad(tg.grad(stopped))(3.0) == 0.0
    assert tg.jvp(stopped, (3.0,), (1.0,)) == (9.0, 3.0)
    assert tg.jvp(tg.grad(stopped), (3.0,), (1.0,)) == (3.0, 0.0)
    np.testing.assert_array_equal(tg.vmap(tg.grad(stopped))(X), X)
    np.testing.assert_array_equal(tg.grad(lambda x: tg.sum(tg.vmap(stopped)(x)))(X), X)


def test_trees_and_plain_values_stay():
    w = tg.param(X)
    found = tg.stop_gradient({"w": (w, 2.0), "x": X})
    assert not found["w"][0].requires_grad
    assert found["w"][1] == 2.0
    assert found["x"] is X


def test_stopped_in_a_compiled_step(backend):
    step = tg.compile(lambda x: tg.grad(lambda x: tg.sum(stopped(x)))(x))
    for scale in (1.0, 2.0, 3.0, 4.0):
        np.testing.assert_array_equal(step(scale * X).numpy(), scale * X)


# ------------------------------------------------------------------ jacfwd, jacrev


@pytest.mark.parametrize("of", [tg.jacfwd, tg.jacrev])
def test_jacobians_by_either_mode(of, backend):
    matrix = np.arange(6.0).reshape(2, 3)
    found = of(lambda y, x: (matrix @ x) ** 2 + y, 1)(1.0, X)
    np.testing.assert_allclose(found, 2 * (matrix @ X)[:, None] * matrix, rtol=1e-14)
