"""`tg.optim.minimize`, against SciPy with derivatives written by hand, and closed forms."""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pytest
from optional import optional

import tapegraph as tg
from tapegraph.optim import minimizers

optimize = optional("scipy.optimize")

pytestmark = pytest.mark.versions

START = np.array([1.3, 0.7, 0.8, 1.9, 1.2])


def rosenbrock(x, scale=100.0):
    return np.sum(scale * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


# ------------------------------------------------------------------ methods

BY_VALUE = ["Nelder-Mead", "Powell"]
BY_GRADIENT = ["CG", "BFGS", "L-BFGS-B", "TNC", "SLSQP", None]
BY_PRODUCTS = ["Newton-CG", "trust-ncg", "trust-krylov", "trust-constr"]
BY_HESSIAN = ["dogleg", "trust-exact"]

KNOWN = {
    **dict.fromkeys(BY_VALUE, {}),
    **dict.fromkeys(BY_GRADIENT, {"jac": "rosen_der"}),
    **dict.fromkeys(BY_PRODUCTS, {"jac": "rosen_der", "hessp": "rosen_hess_prod"}),
    **dict.fromkeys(BY_HESSIAN, {"jac": "rosen_der", "hess": "rosen_hess"}),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("method", KNOWN)
def test_each_method_goes_where_it_goes_with_derivatives_by_hand(method):
    # Where the Hessian is positive definite, as dogleg asks.
    start = np.full(3, 1.1) if method == "dogleg" else START
    found = tg.optim.minimize(rosenbrock, start, method)
    known = {kind: getattr(optimize, name) for kind, name in KNOWN[method].items()}
    want = optimize.minimize(optimize.rosen, start, method=method, **known)
    np.testing.assert_allclose(found.x, want.x, rtol=1e-5)
    assert found.success and found.nit == want.nit
    assert found.fun == rosenbrock(found.x)
    for count in ("nfev", "njev", "nhev"):
        assert found.get(count) == want.get(count)


@pytest.mark.parametrize("method", ["COBYLA", "COBYQA"])
def test_methods_without_derivatives(method):
    try:
        found = tg.optim.minimize(lambda p: tg.sum((p - 3.0) ** 2), np.zeros(2), method)
    except ValueError:  # an older SciPy
        pytest.skip(f"no {method} here")
    np.testing.assert_allclose(found.x, 3.0, atol=1e-3)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("method", BY_PRODUCTS)
def test_the_hessian_in_place_of_products(method, monkeypatch):
    monkeypatch.setattr(minimizers, "hvp", None)
    found = tg.optim.minimize(rosenbrock, START, method, hess=True)
    want = optimize.minimize(
        optimize.rosen, START, method=method, jac=optimize.rosen_der, hess=optimize.rosen_hess
    )
    np.testing.assert_allclose(found.x, want.x, rtol=1e-6)


def test_what_else_the_function_takes():
    found = tg.optim.minimize(rosenbrock, START, "Newton-CG", args=(3.0,))
    want = optimize.minimize(rosenbrock, START, args=(3.0,), method="BFGS", tol=1e-9)
    np.testing.assert_allclose(found.x, want.x, atol=1e-5)
    assert tg.optim.minimize(lambda x, a: (x - a) ** 2, 0.0, args=2.0).x == pytest.approx(2.0)


def test_bounds_constraints_and_options():
    bounds = [(None, 0.5)] + [(None, None)] * 4
    found = tg.optim.minimize(rosenbrock, START, bounds=bounds, tol=1e-10)
    want = optimize.minimize(
        optimize.rosen, START, jac=optimize.rosen_der, bounds=bounds, tol=1e-10, method="L-BFGS-B"
    )
    assert found.x[0] == 0.5
    np.testing.assert_allclose(found.x, want.x, rtol=1e-9)

    on_a_line = optimize.LinearConstraint(np.ones((1, 2)), 1.0, 1.0)
    found = tg.optim.minimize(
        lambda p: p["a"] ** 2 + 3.0 * p["b"] ** 2,
        {"a": 0.0, "b": 0.0},
        "SLSQP",
        constraints=on_a_line,
    )
    assert found.x == pytest.approx({"a": 0.75, "b": 0.25})

    for given in ({"options": {"maxiter": 3}}, {"maxiter": 3}):
        assert tg.optim.minimize(rosenbrock, START, **given).nit == 3
    with pytest.warns(optimize.OptimizeWarning, match="maxitre"):
        tg.optim.minimize(rosenbrock, START, maxitre=3)


ON_A_LINE = {"type": "eq", "fun": lambda x: x[0] + x[1] - 1.0}
RESTRICTIONS = ["a dict", "a list", "an object", "bounds", "bounds, an object"]


def restriction(kind):
    return {
        "a dict": {"constraints": ON_A_LINE},
        "a list": {"constraints": [ON_A_LINE]},
        "an object": {"constraints": optimize.LinearConstraint(np.ones((1, 2)), 1.0, 1.0)},
        "bounds": {"bounds": [(0.5, None), (None, None)]},
        "bounds, an object": {"bounds": optimize.Bounds([0.5, -1.0], [2.0, 2.0])},
    }[kind]


# Where SciPy warns that a method cannot handle them, and goes on without.
CANNOT = {
    "constraints": [*BY_VALUE, *BY_GRADIENT, *BY_PRODUCTS, *BY_HESSIAN],
    "bounds": ["CG", "BFGS", *BY_PRODUCTS, *BY_HESSIAN],
}


@pytest.mark.parametrize("kind", RESTRICTIONS)
def test_what_a_method_would_ignore_is_refused(kind):
    (argument,) = restriction(kind)
    refusing = [m for m in CANNOT[argument] if m not in (None, "SLSQP", "trust-constr")]
    for method in refusing:
        with pytest.raises(ValueError, match="minimize") as caught:
            tg.optim.minimize(rosenbrock, np.ones(2), method, **restriction(kind))
        message = str(caught.value)
        assert f"received {argument} for {method.upper()}, which ignores them" in message
        assert 'Write method="SLSQP" or "trust-constr".' in message
        assert "test_minimize.py" in message


@pytest.mark.parametrize("method", ["SLSQP", None])
@pytest.mark.parametrize("kind", RESTRICTIONS)
def test_what_restricts_the_search_is_kept_to(kind, method):
    found = tg.optim.minimize(
        lambda x: x[0] ** 2 + 3.0 * x[1] ** 2, np.array([1.0, 3.0]), method, **restriction(kind)
    )
    wanted = [0.75, 0.25] if "constraints" in restriction(kind) else [0.5, 0.0]
    np.testing.assert_allclose(found.x, wanted, atol=1e-5)


@pytest.mark.parametrize("argument", CANNOT)
def test_scipy_ignores_what_is_refused(argument):
    """The lists are SciPy's own: it warns of each method in them, and of no other."""
    given = {"constraints": ON_A_LINE, "bounds": [(0.5, None), (None, None)]}[argument]
    for method in [*BY_VALUE, *BY_GRADIENT, *BY_PRODUCTS, *BY_HESSIAN]:
        derivatives = {"jac": lambda x: 2 * x, "hess": lambda x: 2 * np.eye(2)}
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            optimize.minimize(
                lambda x: x @ x,
                np.ones(2),
                method=method,
                options={"maxiter": 1},
                **{argument: given},
                **({} if method in BY_VALUE else derivatives),
            )
        refused = (method or "").lower() in minimizers._UNRESTRICTED[argument]
        assert refused == any(f"cannot handle {argument}" in str(w.message) for w in told)


def test_constraints_are_not_left_out_by_default():
    def f(x):
        return tg.sum(x**2)

    with pytest.raises(ValueError, match=r"constraints for L-BFGS-B.*SLSQP"):
        tg.optim.minimize(f, np.array([1.0, 3.0]), constraints=ON_A_LINE)
    found = tg.optim.minimize(f, np.array([1.0, 3.0]), None, constraints=ON_A_LINE)
    np.testing.assert_allclose(found.x, 0.5, atol=1e-6)
    for none in ((), []):
        assert tg.optim.minimize(f, np.ones(2), constraints=none).success
    assert tg.optim.minimize(f, np.ones(2), "CG", bounds=None).success


@pytest.mark.parametrize(
    "given",
    [
        {"jac": lambda x: 2 * x},
        {"jac": True},
        {"options": {"jac": "2-point"}},
        {"hessp": lambda x, p: 2 * p},
        {"hess": lambda x: 2 * np.eye(2)},
    ],
)
def test_derivatives_by_hand_are_refused(given):
    name = next(iter(given.get("options", given)))
    with pytest.raises(TypeError) as caught:
        tg.optim.minimize(lambda x: tg.sum(x**2), np.ones(2), "Newton-CG", **given)
    message = str(caught.value)
    assert message.startswith("minimize: received ") and f" for '{name}'; expected" in message
    assert "Leave it out; with derivatives by hand call scipy.optimize.minimize." in message


# ------------------------------------------------------------------ structures


def logistic():
    """A design, its labels, and the ridge estimate by Newton's method in NumPy."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 3))
    labels = (x @ [1.0, -2.0, 0.5] + rng.logistic(size=80) > 0.3).astype(float)
    design, penalty = np.c_[x, np.ones(80)], np.diag([1.0, 1.0, 1.0, 0.0])
    theta = np.zeros(4)
    for _ in range(30):
        p = 1 / (1 + np.exp(-design @ theta))
        slope = design.T @ (p - labels) + penalty @ theta
        theta -= np.linalg.solve((design.T * (p * (1 - p))) @ design + penalty, slope)
    return x, labels, theta


@pytest.mark.parametrize("method", ["L-BFGS-B", "BFGS", "Newton-CG", "trust-exact", "Powell"])
def test_logistic_regression_over_a_dict(method, backend):
    x, labels, theta = logistic()

    def loss(p):
        z = x @ p["weights"][0] + p["bias"]
        return tg.sum(tg.logaddexp(0.0, z) - labels * z) + 0.5 * tg.sum(p["weights"][0] ** 2)

    start = {"weights": (np.zeros(3),), "bias": 0}
    found = tg.optim.minimize(loss, start, method, tol=1e-10)
    assert list(found.x) == ["weights", "bias"]
    assert type(found.x["weights"]) is tuple and type(found.x["bias"]) is float
    np.testing.assert_allclose(found.x["weights"][0], theta[:3], atol=2e-6)
    assert found.x["bias"] == pytest.approx(theta[3], abs=2e-6)
    assert start["bias"] == 0 and not start["weights"][0].any()


def test_numbers_matrices_and_dtypes():
    assert tg.optim.minimize(lambda x: (x - 2.0) ** 2, 0).x == pytest.approx(2.0)
    want = np.arange(6.0).reshape(2, 3)
    found = tg.optim.minimize(lambda x: tg.sum((x - want) ** 2), np.zeros((2, 3), np.float32))
    assert found.x.dtype == np.float64 and found.jac.shape == (6,)
    np.testing.assert_allclose(found.x, want, atol=1e-6)
    found = tg.optim.minimize(lambda x: tg.sum((x - want) ** 2), tg.tensor(np.zeros((2, 3))))
    assert type(found.x) is np.ndarray


def test_the_callback_sees_the_structure():
    seen = []

    def of_result(intermediate_result):
        seen.append((intermediate_result.x, intermediate_result.fun))

    def f(p):
        return (p["a"] - 1.0) ** 2 + tg.sum((p["b"] + 2.0) ** 4)

    start = {"a": 0.0, "b": np.zeros((1, 2))}
    for method in ("BFGS", "trust-constr"):
        seen.clear()
        found = tg.optim.minimize(f, start, method, callback=of_result)
        assert len(seen) in (found.nit, found.nit - 1)
        x, value = seen[-1]
        assert x["b"].shape == (1, 2) and value == pytest.approx(f(x).item())

    def of_x(x):
        seen.append(x)
        raise StopIteration

    seen.clear()
    assert tg.optim.minimize(f, start, "CG", callback=of_x).nit == 1
    assert set(seen[0]) == {"a", "b"}
    trust = tg.optim.minimize(
        f, start, "trust-constr", callback=lambda x, state: seen.append((x, state.nit))
    )
    assert seen[-1][0]["b"].shape == (1, 2) and seen[-1][1] in (trust.nit, trust.nit - 1)


def test_nothing_is_left_on_the_tape_or_in_gradients():
    w = tg.param(3.0)
    found = tg.optim.minimize(lambda x: (w * x - 6.0) ** 2, 0.0, "Newton-CG")
    assert type(found.x) is float and found.x == pytest.approx(2.0)
    assert w.grad is None and [entry.op for entry in tg.tape()] == ["param"]


# ------------------------------------------------------------------ by SciPy itself


def test_value_and_gradient_as_scipy_takes_them():
    x = np.arange(10.0)[::2]  # not contiguous
    value, gradient = tg.value_and_grad(rosenbrock)(x)
    assert type(value) is float and value == pytest.approx(optimize.rosen(x))
    assert (type(gradient), gradient.dtype, gradient.ndim) == (np.ndarray, np.float64, 1)
    assert gradient.flags.c_contiguous and gradient.flags.writeable
    np.testing.assert_allclose(gradient, optimize.rosen_der(x), rtol=1e-12)
    found = optimize.minimize(
        tg.value_and_grad(rosenbrock),
        START,
        args=(3.0,),
        jac=True,
        hessp=lambda x, p, *args: tg.hvp(lambda x: rosenbrock(x, *args), (x,), (p,)),
        method="trust-ncg",
    )
    np.testing.assert_allclose(found.x, 1.0, atol=1e-4)


# ------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: tg.optim.minimize(tg.exp, START), ValueError, ["(5,)", "a scalar"]),
        (lambda: tg.optim.minimize(tg.exp, START, "Powell"), ValueError, ["minimize", "(5,)"]),
        (lambda: tg.optim.minimize(tg.exp, START, "dogleg"), ValueError, ["(5,)"]),
        (lambda: tg.optim.minimize(lambda x: "no", START), TypeError, ["result", "'no'"]),
        (lambda: tg.optim.minimize(3, START), TypeError, ["minimize", "int 3", "a function"]),
        (
            lambda: tg.optim.minimize(lambda p: p["a"][0], {"a": [1.0, "no"]}),
            TypeError,
            ["minimize", "x0['a'][1]", "'no'"],
        ),
        (lambda: tg.optim.minimize(lambda p: 0.0, {"a": []}), ValueError, ["to vary"]),
        (lambda: tg.optim.minimize(tg.sum, START, "downhill"), ValueError, ["Unknown solver"]),
        (lambda: tg.optim.minimize(tg.sum, tg.param([1.0])), TypeError, ["x.numpy()"]),
        (
            lambda: tg.grad(lambda a: tg.optim.minimize(lambda x: (x - a) ** 2, 0.0).x)(1.0),
            TypeError,
            ["minimize", "derivative", "lose", "Write implicit=True"],
        ),
        (
            lambda: tg.grad(lambda a: tg.optim.minimize(lambda x: x - a, 0.0, "Powell").x)(1.0),
            TypeError,
            ["minimize", "lose", "Write implicit=True"],
        ),
        (
            lambda: tg.optim.minimize(rosenbrock, START, 0.5, implicit=True),
            TypeError,
            ["float 0.5 for 'method'", "Write args=(0.5,)"],
        ),
        (
            lambda: tg.jvp(lambda a: tg.optim.minimize(lambda x: x - a, a).x, (1.0,), (1.0,)),
            TypeError,
            ["Dual", "lose"],
        ),
    ],
)
def test_errors(call, kind, words):
    with pytest.raises(kind) as caught:
        call()
    assert all(word in str(caught.value) for word in words)


def test_without_scipy(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(ImportError, match=r"pip install \"scipy>=1\.13\""):
        tg.optim.minimize(tg.sum, START)
