"""`root`, `fixed_point` and implicit minimisers, against closed forms to second order."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from optional import optional

import tapegraph as tg
from tapegraph.optim import implicit

optional("scipy")
A = np.array([2.0, 10.0])


def square_root(a):
    return tg.optim.root(lambda x: x * x - a, 1.0)


def cubic(a):
    """The x with x^3 + x = a, of which dx/da is 1 / (3 x^2 + 1)."""
    return tg.optim.root(lambda x: x**3 + x - a, np.ones(2))


def coupled(a):
    return tg.optim.root(lambda x: x**3 + x - a + 0.1 * x[::-1], np.ones(2))


def test_derivatives_of_a_square_root():
    assert square_root(4.0) == pytest.approx(2.0, rel=1e-12)
    assert type(square_root(4.0)) is float
    assert tg.grad(square_root)(4.0) == pytest.approx(0.25, rel=1e-12)
    assert tg.grad(tg.grad(square_root))(4.0) == pytest.approx(-1 / 32, rel=1e-12)
    assert tg.grad(tg.grad(tg.grad(square_root)))(4.0) == pytest.approx(3 / 256, rel=1e-12)
    assert tg.jvp(square_root, (4.0,), (2.0,))[1] == pytest.approx(0.5, rel=1e-12)
    assert tg.jvp(tg.grad(square_root), (4.0,), (1.0,))[1] == pytest.approx(-1 / 32, rel=1e-12)


def test_the_popular_newton_step_has_another_second_derivative():
    """One recorded step with the Jacobian held fixed: right to first order alone."""

    def step(a):
        x = tg.stop_gradient(cubic(a))
        slope = tg.stop_gradient(3 * x**2 + 1)
        return x - (x**3 + x - a) / slope

    x = cubic(A)
    right = np.diag(-6 * x / (3 * x**2 + 1) ** 3)
    np.testing.assert_allclose(tg.jacobian(step)(A), np.diag(1 / (3 * x**2 + 1)), rtol=1e-9)
    found = tg.hessian(lambda a: tg.sum(cubic(a)))(A)
    np.testing.assert_allclose(found, right, rtol=1e-9)
    assert not np.allclose(tg.hessian(lambda a: tg.sum(step(a)))(A), right)


def test_closed_over_parameters_and_trees():
    w, b = tg.param([[3.0, 1.0], [-1.0, 2.0]]), tg.param([1.0, 1.0])
    found = tg.optim.root(lambda p, b: {"r": w @ p["x"] - b}, {"x": np.zeros(2)}, b)
    inverse = np.linalg.inv(w.data)
    np.testing.assert_allclose(found["x"].data, inverse @ b.data, rtol=1e-12)
    found["x"].sum().backward()
    np.testing.assert_allclose(b.grad, inverse.T @ np.ones(2), rtol=1e-12)
    expected = -np.outer(inverse.T @ np.ones(2), inverse @ b.data)
    np.testing.assert_allclose(w.grad, expected, rtol=1e-12)


def test_examples():
    x = np.array([1.0, 4.0, 9.0])
    np.testing.assert_allclose(tg.vmap(square_root)(x), np.sqrt(x), rtol=1e-10)
    np.testing.assert_allclose(tg.vmap(tg.grad(square_root))(x), 0.5 / np.sqrt(x), rtol=1e-10)
    second = tg.vmap(tg.grad(tg.grad(square_root)))(x)
    np.testing.assert_allclose(second, -0.25 * x**-1.5, rtol=1e-9)


@pytest.mark.parametrize("around", [lambda d: d, tg.compile])
def test_second_derivatives_in_every_mode(around, thorough):
    roots = lambda a: tg.sum(tg.optim.root(lambda x: x**3 - a, np.ones(2)))  # noqa: E731
    a = np.array([2.0, 3.0])
    slope = around(lambda a: tg.jvp(roots, (a,), (np.ones(2),))[1])(a)
    np.testing.assert_allclose(tg.tensor(slope).data, np.sum(a ** (-2 / 3)) / 3, rtol=1e-9)
    expected = np.diag(-2 / 9 * a ** (-5 / 3))
    pairs = [*itertools.product((tg.jacfwd, tg.jacrev), repeat=2)]
    for outer, inner in pairs if thorough or around is not tg.compile else pairs[1:3]:
        derivative = outer(inner(roots))
        found = tg.tensor(around(derivative)(a)).data
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
        found = tg.tensor(around(tg.vmap(derivative))(np.stack([a + 1, a]))).data[1]
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_a_compiled_step():
    def f(a):
        return tg.value_and_grad(lambda a: tg.sum(cubic(a)))(a)

    step = tg.compile(f)
    with tg.use_backend("native"):
        for n in range(1, 6):
            value, slope = step(n * A)
            np.testing.assert_allclose(value.numpy(), np.sum(cubic(n * A)), rtol=1e-12)
            np.testing.assert_allclose(slope.numpy(), f(n * A)[1], rtol=1e-12)


def test_floats_that_change_in_a_compiled_step():
    closed_over = tg.compile(lambda a: tg.optim.root(lambda x: x * x - a, 1.0))
    given = tg.compile(lambda a: tg.optim.root(lambda x, a: x * x - a, 1.0, a))
    with tg.use_backend("native"):
        for a in (1.0, 2.0, 3.0, 4.0, 5.0):
            for step in (closed_over, given):
                np.testing.assert_allclose(step(a).item(), np.sqrt(a), rtol=1e-12)


def test_equations_without_a_matrix(monkeypatch):
    gradient = tg.grad(lambda a: tg.sum(coupled(a) ** 2))(A)
    hessian = tg.hessian(lambda a: tg.sum(coupled(a) ** 2))(A)
    monkeypatch.setattr(implicit, "DENSE", 1)
    found = tg.grad(lambda a: tg.sum(coupled(a) ** 2))(A)
    np.testing.assert_allclose(found, gradient, rtol=1e-9)
    found = tg.hessian(lambda a: tg.sum(coupled(a) ** 2))(A)
    np.testing.assert_allclose(found, hessian, rtol=1e-9)


def test_many_unknowns():
    """A chain of 700 unknowns, by GMRES, against the matrix."""
    n = 700
    b = np.linspace(1.0, 2.0, n)

    def residual(x, b):
        left = np.concatenate([np.zeros(1), x[:-1]])
        return 4.0 * x - left + 0.1 * x**3 - b

    x = tg.optim.root(residual, np.ones(n), b, method="krylov", tol=1e-12)
    found = tg.grad(
        lambda b: tg.sum(tg.optim.root(residual, x, b, method="krylov", tol=1e-12) ** 2)
    )(b)
    matrix = np.diag(4.0 + 0.3 * x**2) - np.diag(np.ones(n - 1), -1)
    np.testing.assert_allclose(found, np.linalg.solve(matrix.T, 2 * x), rtol=1e-8)


def test_fixed_points():
    cosine = lambda a: tg.optim.fixed_point(lambda x, a: a * np.cos(x), 0.5, a)  # noqa: E731
    x = cosine(1.0)
    assert x == pytest.approx(0.7390851332151607, rel=1e-12)
    slope = np.cos(x) / (1 + np.sin(x))
    assert tg.grad(cosine)(1.0) == pytest.approx(slope, rel=1e-10)
    h = 1e-5
    second = (tg.grad(cosine)(1 + h) - tg.grad(cosine)(1 - h)) / (2 * h)
    assert tg.grad(tg.grad(cosine))(1.0) == pytest.approx(second, rel=1e-7)
    plain = tg.optim.fixed_point(lambda x: 0.5 * x + A, np.zeros(2), method="iteration")
    np.testing.assert_allclose(plain, 2 * A, rtol=1e-9)


def minimum(a):
    found = tg.optim.minimize(
        lambda x, a: tg.sum((x - a) ** 2) + 0.5 * tg.sum(x**4),
        np.zeros(2),
        "Newton-CG",
        args=(a,),
        implicit=True,
        tol=1e-14,
    )
    return found.x


def test_minimisers():
    a = np.array([1.0, 2.0])
    x = minimum(a)  # of which x - a + x^3 is zero
    np.testing.assert_allclose(x + x**3, a, rtol=1e-10)
    np.testing.assert_allclose(tg.jacobian(minimum)(a), np.diag(1 / (1 + 3 * x**2)), rtol=1e-9)
    second = tg.hessian(lambda a: tg.sum(minimum(a)))(a)
    np.testing.assert_allclose(second, np.diag(-6 * x / (1 + 3 * x**2) ** 3), rtol=1e-8)


def test_hyperparameters_of_a_closed_over_loss():
    """The derivative of a ridge regression by its penalty."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 3)), rng.normal(size=20)
    penalty = tg.param(0.3)
    found = tg.optim.minimize(
        lambda w: tg.sum((x @ w - y) ** 2) + penalty * tg.sum(w**2), np.zeros(3), implicit=True
    )
    tg.sum(found.x).backward()
    matrix = np.linalg.inv(x.T @ x + 0.3 * np.eye(3))
    np.testing.assert_allclose(penalty.grad, -np.sum(matrix @ matrix @ x.T @ y), rtol=1e-5)


# ------------------------------------------------------------------ what is refused


def test_no_convergence_is_an_error_with_the_residual():
    with pytest.raises(RuntimeError, match="did not converge.*largest residual is 1"):
        tg.optim.root(lambda x: x * x + 1.0, 1.0)
    with pytest.raises(RuntimeError, match="did not converge: Failed to converge after 3"):
        tg.optim.fixed_point(lambda x: 2 * x + 1, 1.0, method="iteration", maxiter=3)
    with pytest.raises(RuntimeError, match="the minimiser did not converge.*gradient is"):
        tg.optim.minimize(lambda x: tg.sum((x - 3) ** 4), np.zeros(2), maxiter=1, implicit=True)


def test_singular_equations():
    flat = lambda a: tg.optim.root(lambda x: 0.0 * x + (x - x) * a, 1.0)  # noqa: E731
    with pytest.raises(np.linalg.LinAlgError):
        tg.grad(flat)(1.0)


def test_what_is_refused():
    with pytest.raises(ValueError, match="as many equations as unknowns"):
        tg.optim.root(lambda x: tg.sum(x), np.ones(2))
    with pytest.raises(TypeError, match=r"complex numbers in x0\['z'\]"):
        tg.optim.root(lambda p: p["z"], {"z": 1j})
    for solver in (tg.optim.root, tg.optim.fixed_point):
        with pytest.raises(TypeError, match=r"'args'\. Did you mean \w+\(f, x0, \*args\)\?"):
            solver(lambda x, a: x * x - a, 1.0, args=(4.0,))
    with pytest.raises(ValueError, match="one number or more to vary"):
        tg.optim.root(lambda x: x, [])
    with pytest.raises(RuntimeError, match="draws random numbers"):
        tg.optim.root(lambda x: x - tg.random.normal(), 1.0)
    with pytest.raises(tg.ConcretizationError, match=r"tg\.where"):
        tg.optim.root(lambda x: x if x > 0 else -x, 1.0)
    with pytest.raises(ValueError, match="implicit=True with bounds"):
        tg.optim.minimize(lambda x: x**2, 1.0, bounds=[(0, 1)], implicit=True)
    with pytest.raises(ValueError, match="one that returns one number"):
        tg.optim.minimize(lambda x: x**2, np.ones(2), implicit=True)
