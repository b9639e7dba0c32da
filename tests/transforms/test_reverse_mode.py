"""Reverse-mode transforms: values, structures, nesting, and what they refuse."""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict, namedtuple

import numpy as np
import pytest

import tapegraph as tg
from tests.quick import in_one

X = np.array([0.3, -0.7, 1.1])
A = np.array([[0.2, 0.5, -0.4], [0.7, -0.1, 0.3], [0.6, 0.9, -0.8]])


def forward_grad(f):
    """The derivative of a function of a number, in forward mode."""
    return lambda x: tg.jvp(f, (x,), (1.0,))[1]


MODES = {"reverse": tg.grad, "forward": forward_grad}
PAIRS = list(itertools.product(MODES, repeat=2))
TRIPLES = list(itertools.product(MODES, repeat=3))


# ------------------------------------------------------------------ levels


@pytest.mark.one_in(3, of="tensorflow")
@pytest.mark.parametrize(("outer", "inner"), PAIRS)
def test_no_perturbation_confusion(outer, inner, backend):
    D, d = MODES[outer], MODES[inner]
    assert D(lambda x: x * d(lambda y: x + y)(1.0))(1.0) == 1.0
    assert D(lambda x: x * d(lambda y: x * y)(1.0))(4.0) == 8.0
    assert D(lambda x: x * d(lambda y: x)(2.0))(3.0) == 0.0
    assert D(lambda x: d(lambda y: x * y * y)(x))(3.0) == 12.0
    assert D(lambda x: x * d(lambda y: y * y)(x))(3.0) == 12.0
    # An inner derivative at a function of the outer variable, beside that variable.
    assert D(lambda x: d(lambda y: x * x * y * y)(x * x))(2.0) == 64.0


@pytest.mark.one_in(2, of="tensorflow")
@pytest.mark.parametrize("modes", TRIPLES)
def test_three_levels(modes, backend):
    D, d, e = (MODES[mode] for mode in modes)
    assert D(lambda x: d(lambda y: e(lambda z: x * y * z)(y))(x))(5.0) == 1.0
    got = D(lambda x: d(lambda y: e(lambda z: tg.sin(x * y * z))(y) * x)(x))(0.8)

    def inner(x, y):  # d/dz sin(x y z) at z = y, times x
        return x * y * math.cos(x * y * y) * x

    def by_y(x):
        return (inner(x, x + 1e-4) - inner(x, x - 1e-4)) / 2e-4

    want = (by_y(0.8 + 1e-4) - by_y(0.8 - 1e-4)) / 2e-4
    assert got == pytest.approx(want, rel=1e-5)


@pytest.mark.parametrize("modes", [*PAIRS, *TRIPLES])
def test_orders_in_every_mixture(modes, backend):
    f = tg.sin
    for mode in modes:
        f = MODES[mode](f)
    assert f(0.7) == pytest.approx(math.sin(0.7 + len(modes) * math.pi / 2), rel=1e-12)


def test_ten_times_the_derivative_of_sine():
    f = tg.sin
    for order in range(1, 11):
        f = tg.grad(f)
        assert f(0.7) == pytest.approx(math.sin(0.7 + order * math.pi / 2), rel=1e-12)


@pytest.mark.parametrize("modes", PAIRS)
def test_closures_over_arrays_of_an_outer_level(modes):
    """The gradient of a norm of a gradient, in which the parameters are closed over."""

    def penalty(w):
        slope = tg.grad(lambda x: tg.sum(tg.tanh(A @ x) * w))(X)
        return tg.sum(slope**2)

    slope = 1 - np.tanh(A @ X) ** 2
    J = slope[:, None] * A  # the slope is J.T w
    w = np.array([1.0, 2.0, -1.0])
    np.testing.assert_allclose(tg.grad(penalty)(w), 2 * J @ J.T @ w, rtol=1e-12)
    v = np.array([0.5, -1.0, 2.0])
    np.testing.assert_allclose(tg.hvp(penalty, (w,), (v,)), 2 * J @ J.T @ v, rtol=1e-12)
    np.testing.assert_allclose(tg.hessian(penalty)(w), 2 * J @ J.T, rtol=1e-12)


def test_a_dual_in_a_dual_out():
    x = tg.Dual([1.0, 2.0], [1.0, 0.0])
    g = tg.grad(lambda x: tg.sum(x**3))(x)
    assert isinstance(g, tg.Dual)
    np.testing.assert_allclose(g.primal.data, [3.0, 12.0])
    np.testing.assert_allclose(g.tangent.data, [6.0, 0.0])
    value, _ = tg.value_and_grad(lambda x: tg.sum(x**3))(x)
    assert isinstance(value, tg.Dual) and value.tangent.item() == 3.0


def test_a_tensor_in_a_tensor_out():
    constant, leaf = tg.tensor([1.0, 2.0]), tg.param([1.0, 2.0])
    g = tg.grad(lambda x: tg.sum(x**3))(constant)
    assert isinstance(g, tg.Tensor) and not g.requires_grad
    value, g = tg.value_and_grad(lambda x: tg.sum(x**3))(leaf)
    assert isinstance(value, tg.Tensor) and value.requires_grad
    tg.sum(g).backward()
    np.testing.assert_allclose(leaf.grad, [6.0, 12.0])
    leaf.zero_grad()
    value.backward()
    np.testing.assert_allclose(leaf.grad, [3.0, 12.0])


def test_a_parameter_in_the_closure():
    w = tg.param(3.0)
    g = tg.grad(lambda x: tg.sum(w * x**2))(np.array([1.0, 2.0]))
    assert isinstance(g, tg.Tensor)
    tg.sum(g).backward()
    assert w.grad == 6.0
    with tg.no_grad():
        g = tg.grad(lambda x: tg.sum(w * x**2))(np.array([1.0, 2.0]))
    assert type(g) is np.ndarray
    np.testing.assert_allclose(g, [6.0, 12.0])


def test_no_grad_inside_makes_constants():
    def f(x):
        with tg.no_grad():
            frozen = x * x
        return frozen * x

    assert tg.grad(f)(3.0) == 9.0


# ------------------------------------------------------------------ structures


def test_dicts_lists_and_tuples_of_them(backend):
    Pair = namedtuple("Pair", "a b")

    def f(p, scale):
        return scale * tg.sum(p["w"] @ p["l"][0]) + p["n"].a ** 2 * p["n"].b

    p = OrderedDict(w=A, l=[X, (2.0, np.float32([1.0]))], n=Pair(3.0, np.array(0.5)))
    g = tg.grad(f)(p, 2.0)
    assert type(g) is OrderedDict and type(g["n"]) is Pair and type(g["l"][1]) is tuple
    np.testing.assert_allclose(g["w"], 2.0 * np.ones(3)[:, None] * X)
    np.testing.assert_allclose(g["l"][0], 2.0 * A.sum(axis=0))
    assert g["l"][1][0] == 0.0 and type(g["l"][1][0]) is float
    assert g["l"][1][1].dtype == np.float32
    assert type(g["n"].a) is float and g["n"].a == 3.0
    assert type(g["n"].b) is np.ndarray and g["n"].b == 9.0


def test_several_arguments():
    def f(x, y, *, k=1.0):
        return k * x * y**2

    assert tg.grad(f, (0, 1))(2.0, 3.0) == (9.0, 12.0)
    assert tg.grad(f, [1, 0])(2.0, 3.0, k=2.0) == [24.0, 18.0]
    assert tg.grad(f, (1,))(2.0, 3.0) == (12.0,)
    assert tg.grad(f, argnum=1)(2.0, 3.0) == 12.0
    assert tg.grad(f, argnums=1)(2.0, 3.0) == 12.0
    value, grads = tg.value_and_grad(f, (0, 1))(2.0, 3.0)
    assert (type(value), value, grads) == (float, 18.0, (9.0, 12.0))


def test_a_value_is_what_scipy_takes():
    value, g = tg.value_and_grad(lambda x: tg.sum(x**2))(np.float32([1.0, 2.0]))
    assert type(value) is float and value == 5.0
    assert type(g) is np.ndarray and g.dtype == np.float32 and g.flags.c_contiguous
    optimize = pytest.importorskip("scipy.optimize")

    def rosen(x):
        return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    start = np.array([1.3, 0.7, 0.8, 1.9, 1.2])
    found = optimize.minimize(
        tg.value_and_grad(rosen),
        start,
        jac=True,
        method="Newton-CG",
        hessp=lambda x, v: tg.hvp(rosen, (x,), (v,)),
        options={"xtol": 1e-10},
    )
    np.testing.assert_allclose(found.x, 1.0, atol=1e-6)
    np.testing.assert_allclose(tg.grad(rosen)(start), optimize.rosen_der(start), rtol=1e-12)
    np.testing.assert_allclose(tg.hessian(rosen)(start), optimize.rosen_hess(start), rtol=1e-12)


def test_auxiliary_results():
    def f(x):
        return tg.sum(x**2), {"twice": x * 2, "name": "f", "half": tg.sum(x) / 2}

    for has_value in (False, True):
        transform = tg.value_and_grad if has_value else tg.grad
        first, second = transform(f, has_aux=True)(X)
        aux, g = (first[1], second) if has_value else (second, first)
        np.testing.assert_allclose(g, 2 * X)
        assert type(aux["twice"]) is np.ndarray and aux["name"] == "f"
        np.testing.assert_allclose(aux["twice"], 2 * X)
        assert aux["half"] == pytest.approx(np.sum(X) / 2)
    leaf = tg.param(X)
    _, aux = tg.grad(f, has_aux=True)(leaf)
    tg.sum(aux["twice"]).backward()  # it still depends on what came in
    np.testing.assert_array_equal(leaf.grad, 2.0)
    with pytest.raises(TypeError, match="has_aux"):
        tg.grad(tg.sum, has_aux=True)(X)


def test_integers_become_floats():
    assert tg.grad(lambda x: x**2)(3) == 6.0
    g = tg.grad(lambda x: tg.sum(x**2))(np.array([1, 2]))
    assert g.dtype == np.float64
    np.testing.assert_array_equal(g, [2.0, 4.0])


def test_what_the_result_does_not_depend_on_has_a_zero_gradient():
    g = tg.grad(lambda p: p["a"] * 2.0)({"a": 1.0, "b": X})
    np.testing.assert_array_equal(g["b"], np.zeros(3))
    assert tg.grad(lambda x: 3.0)(1.0) == 0.0
    np.testing.assert_array_equal(tg.hessian(lambda x: tg.sum(x))(X), np.zeros((3, 3)))


def test_one_reverse_pass_a_call():
    runs = []

    def f(x):
        runs.append(1)
        return tg.sum(tg.sin(x) ** 2)

    x = np.linspace(0.0, 1.0, 1000)
    np.testing.assert_allclose(tg.grad(f)(x), np.sin(2 * x), rtol=1e-12, atol=1e-12)
    assert len(runs) == 1


def test_the_callers_array_is_left_alone():
    x = X.copy()
    g = tg.grad(lambda x: tg.sum(x))(x)
    g[0] = 9.0
    np.testing.assert_array_equal(x, X)


def test_elementwise_grad(backend):
    np.testing.assert_allclose(tg.elementwise_grad(tg.tanh)(X), 1 - np.tanh(X) ** 2, rtol=1e-12)
    twice = tg.elementwise_grad(tg.elementwise_grad(tg.sin))
    np.testing.assert_allclose(twice(X), -np.sin(X), rtol=1e-12)
    by_b = tg.elementwise_grad(lambda a, b: a * b, argnum=1)
    np.testing.assert_array_equal(by_b(X, X), X)
    assert tg.elementwise_grad(tg.sin)(0.5) == pytest.approx(math.cos(0.5))


# ------------------------------------------------------------------ vjp, jacobian, hessian, hvp


def test_vjp(backend):
    value, pullback = tg.vjp(lambda x, y: tg.sin(x) * y, X, 2.0)
    np.testing.assert_allclose(value, np.sin(X) * 2.0)
    for g in (np.ones(3), np.array([1.0, 0.0, -2.0])):
        by_x, by_y = pullback(g)
        np.testing.assert_allclose(by_x, g * np.cos(X) * 2.0, rtol=1e-12)
        assert type(by_y) is float
        assert by_y == pytest.approx(np.sum(g * np.sin(X)))
    _, pullback = tg.vjp(tg.sin, X)
    np.testing.assert_allclose(pullback(np.ones(3)), np.cos(X), rtol=1e-12)


def test_vjp_of_structures():
    def f(p):
        return {"y": p["w"] @ p["x"], "n": tg.sum(p["x"])}

    value, pullback = tg.vjp(f, {"w": A, "x": X})
    np.testing.assert_allclose(value["y"], A @ X)
    g = pullback({"y": np.array([1.0, 0.0, 0.0]), "n": 2.0})
    np.testing.assert_allclose(g["x"], A[0] + 2.0)
    np.testing.assert_allclose(g["w"], np.outer([1.0, 0.0, 0.0], X))
    with pytest.raises(ValueError, match=r"structure \*.*\{'y': \*, 'n': \*\}"):
        pullback(np.ones(3))
    with pytest.raises(ValueError, match=r"\(2,\).*\(3,\)"):
        pullback({"y": np.ones(2), "n": 1.0})


def test_one_reverse_pass_for_several_results(backend, monkeypatch):
    from tapegraph.differentiation.gradients import Region

    passes = []
    run = Region.gradients

    def noted(region, seeds, **how):
        passes.append(seeds)
        return run(region, seeds, **how)

    monkeypatch.setattr(Region, "gradients", noted)

    def f(x, y):
        return {"a": A @ x, "b": (tg.sum(x) * y, np.float32([7.0])), "c": x.astype(np.float32)}

    value, pullback = tg.vjp(f, X, 2.0)
    assert value["c"].dtype == np.float32 and value["b"][1].dtype == np.float32
    u, v = np.array([1.0, -2.0, 0.5]), np.float32([0.25, 0.5, 2.0])
    by_x, by_y = pullback({"a": u, "b": (3.0, np.ones(1)), "c": v})
    np.testing.assert_allclose(by_x, A.T @ u + 6.0 + v, rtol=1e-12)
    assert by_y == pytest.approx(3.0 * X.sum())
    assert len(passes) == 1
    # Of results, and cotangents, that carry an outer level.
    got = tg.grad(lambda x: tg.sum(tg.vjp(lambda y: (y**2, y**3), x)[1]((x, x**2))))(X)
    np.testing.assert_allclose(got, 4 * X + 12 * X**3, rtol=1e-12)
    _, got = tg.jvp(lambda x: tg.vjp(lambda y: (y**2, X), x)[1]((x, x)), (X,), (np.ones(3),))
    np.testing.assert_allclose(got, 4 * X, rtol=1e-12)
    _, pullback = tg.vjp(lambda x: (X, 3.0), X)
    np.testing.assert_array_equal(pullback((X, 1.0)), 0.0)


def test_a_cotangent_is_differentiated():
    """What a pullback gives is linear in the cotangent, and varies with the point."""
    _, pullback = tg.vjp(lambda x: x**2, X)
    seed = tg.param([1.0, 2.0, 3.0])
    tg.sum(pullback(seed) ** 2).backward()
    np.testing.assert_allclose(seed.grad, 2 * seed.data * (2 * X) ** 2, rtol=1e-12)
    _, tangent = tg.jvp(lambda g: pullback(g), (np.ones(3),), (X,))
    np.testing.assert_allclose(tangent, 2 * X * X, rtol=1e-12)
    got = tg.grad(lambda x: tg.sum(tg.vjp(lambda y: y**3, x)[1](x)))(X)  # d/dx of 3 x^2 x
    np.testing.assert_allclose(got, 9 * X**2, rtol=1e-12)


@pytest.mark.parametrize("mode", ["forward", "reverse", None])
def test_jacobian(mode, backend):
    def f(x):
        return tg.tanh(A[:2] @ x)

    want = (1 - np.tanh(A[:2] @ X) ** 2)[:, None] * A[:2]
    np.testing.assert_allclose(tg.jacobian(f, mode=mode)(X), want, rtol=1e-12)
    got = tg.jacobian(lambda x: x[:, None] * x[None], mode=mode)(X)
    eye = np.eye(3)
    want = eye[:, None, :] * X[None, :, None] + eye[None] * X[:, None, None]
    np.testing.assert_allclose(got, want, rtol=1e-12)
    assert tg.jacobian(lambda x: x**2, mode=mode)(3.0) == 6.0
    assert tg.jacobian(lambda x: x * X, mode=mode)(2.0).tolist() == X.tolist()
    assert tg.jacobian(lambda x: x[:0], mode=mode)(X).shape == (0, 3)
    assert tg.jacobian(lambda x: tg.sum(x) * np.ones(2), mode=mode)(np.ones(0)).shape == (2, 0)
    by = tg.jacobian(lambda p, y: {"s": p["a"] * y}, (0, 1), mode=mode)({"a": X}, 2.0)
    np.testing.assert_allclose(by["s"][0]["a"], 2.0 * np.eye(3))
    np.testing.assert_allclose(by["s"][1], X)


def test_the_mode_that_needs_fewer_passes():
    runs = []

    def f(x):
        runs.append(type(x))
        return tg.concat([x, x * 2.0, x * 3.0])

    tg.jacobian(f)(X)
    assert runs == [tg.Tensor, tg.Dual]
    runs.clear()
    tg.jacobian(lambda x: tg.sum(f(x)))(X)
    assert runs == [tg.Tensor]


def test_hessian_is_symmetric_and_right(backend):
    def f(x):
        return tg.log(tg.sum(tg.exp(A @ x)))

    H = tg.hessian(f)(X)
    p = np.exp(A @ X) / np.exp(A @ X).sum()
    np.testing.assert_allclose(H, A.T @ (np.diag(p) - np.outer(p, p)) @ A, rtol=1e-12)
    np.testing.assert_array_equal(H, H.T)
    assert tg.hessian(lambda x: x**3)(2.0) == 12.0
    H = tg.hessian(lambda m: tg.sum(m @ m))(A)
    assert H.shape == (3, 3, 3, 3)
    np.testing.assert_array_equal(H, H.transpose(2, 3, 0, 1))


def test_hessian_by_blocks():
    def f(p, c):
        return tg.sum(p["a"] ** 2 * c) * p["b"]

    by = tg.hessian(f, (0, 1))({"a": X, "b": 2.0}, 3.0)
    np.testing.assert_allclose(by[0]["a"][0]["a"], np.diag([12.0] * 3))
    np.testing.assert_allclose(by[0]["a"][0]["b"], 6 * X)
    np.testing.assert_allclose(by[0]["b"][0]["a"], 6 * X)
    np.testing.assert_allclose(by[1][0]["a"], 4 * X)
    np.testing.assert_allclose(by[0]["a"][1], 4 * X)
    assert by[1][1] == 0.0


def test_hvp_is_the_hessian_times_a_vector(backend):
    def f(x):
        return tg.sum(tg.tanh(A @ x) ** 3) + tg.prod(x)

    v = np.array([1.0, -2.0, 0.5])
    got = tg.hvp(f, (X,), (v,))
    assert type(got) is np.ndarray
    np.testing.assert_allclose(got, tg.hessian(f)(X) @ v, rtol=1e-11)
    by_x, by_c = tg.hvp(lambda x, c: tg.sum(c * x**2), (X, 2.0), (v, 1.0))
    np.testing.assert_allclose(by_x, 4 * v + 2 * X, rtol=1e-12)
    assert by_c == pytest.approx(np.sum(2 * X * v))
    got = tg.hvp(lambda p: p["a"] ** 2 * p["b"], ({"a": 3.0, "b": 2.0},), ({"a": 1.0, "b": 0.0},))
    assert got == {"a": 4.0, "b": 6.0}


def test_derivatives_of_transforms():
    def cube(x):
        return tg.sum(x**3)

    np.testing.assert_allclose(tg.grad(lambda x: tg.sum(tg.hvp(cube, (x,), (x,))))(X), 12 * X)
    np.testing.assert_allclose(
        tg.jacobian(lambda x: tg.hessian(lambda y: tg.sum(y**4))(x))(X),
        np.einsum("ij,jk->ijk", np.eye(3), np.diag(24 * X)),
        atol=1e-12,
    )
    value, tangent = tg.jvp(lambda x: tg.jacobian(lambda y: y**3)(x), (X,), (np.ones(3),))
    np.testing.assert_allclose(value, np.diag(3 * X**2))
    np.testing.assert_allclose(tangent, np.diag(6 * X))


def test_threads_do_not_mix_levels():
    import threading

    found = []

    def work(x):
        for _ in range(10):
            second = tg.grad(lambda y: tg.grad(lambda z: tg.sin(y * z))(y))(x)
            found.append(second - (2 * x * -x * math.sin(x * x) + math.cos(x * x)) + 0.0 * x)

    threads = [threading.Thread(target=work, args=(0.3 + k / 3,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # d/dy of y cos(y^2), the inner derivative at z = y
    assert len(found) == 40
    np.testing.assert_allclose(found, 0.0, atol=1e-12)


# ------------------------------------------------------------------ errors


@in_one(
    ("call", "kind", "words"),
    [
        (lambda: tg.grad(tg.exp)(X), ValueError, ["grad", "(3,)", "tg.jacobian"]),
        (lambda: tg.value_and_grad(tg.exp)(X), ValueError, ["value_and_grad", "(3,)"]),
        (lambda: tg.hessian(tg.exp)(X), ValueError, ["hessian", "(3,)"]),
        (lambda: tg.hvp(tg.exp, (X,), (X,)), ValueError, ["hvp", "(3,)"]),
        (lambda: tg.grad(tg.exp, ()), ValueError, ["no argnums"]),
        (lambda: tg.grad(tg.exp, "a"), TypeError, ["argnums", "'a'"]),
        (lambda: tg.grad(tg.exp, (0, 2))(1.0, 2.0), ValueError, ["argnum 2", "2 positional"]),
        (lambda: tg.jacobian(tg.exp, 1)(X), ValueError, ["argnum 1"]),
        (lambda: tg.jacobian(tg.exp, mode="both"), ValueError, ["'both'", '"reverse"']),
        (lambda: tg.hessian(3), TypeError, ["hessian", "int 3"]),
        (lambda: tg.vjp(3, X), TypeError, ["vjp", "int 3"]),
        (lambda: tg.checkpoint(3), TypeError, ["checkpoint", "int 3"]),
        (lambda: tg.hvp(tg.sum, X, X), TypeError, ["hvp", "tuple"]),
        (lambda: tg.hvp(tg.sum, (X,), ()), ValueError, ["1 primals and 0 tangents"]),
        (lambda: tg.hvp(tg.sum, (X,), (X[:2],)), ValueError, ["tangents[0]", "(2,)", "(3,)"]),
        (lambda: tg.hvp(lambda p: p["a"], ({"a": X},), ({},)), ValueError, ["{}", "{'a': *}"]),
        (
            lambda: tg.grad(lambda p: p["a"])({"a": 1.0, "b": [2.0, "no"]}),
            TypeError,
            ["argument 0['b'][1]", "'no'"],
        ),
        (lambda: tg.grad(lambda x, p: x, 1)(1.0, None), TypeError, ["argument 1", "None"]),
        (lambda: tg.vjp(lambda x, p: x, 1.0, None), TypeError, ["primals[1]", "None"]),
        (lambda: tg.hvp(lambda p: 1.0, (None,), (None,)), TypeError, ["primals[0]", "None"]),
        (lambda: tg.vjp(lambda x: "no", X), TypeError, ["result", "'no'"]),
        (lambda: tg.vjp(tg.sum, {"a": [X, "no"]}), TypeError, ["vjp", "primals[0]['a'][1]"]),
        (
            lambda: tg.vjp(lambda x: {"k": x}, X)[1]({"k": "no"}),
            TypeError,
            ["vjp", "the cotangent['k']", "'no'"],
        ),
        (lambda: tg.hvp(tg.sum, ({"a": "no"},), ({"a": X},)), TypeError, ["primals[0]['a']"]),
        (lambda: tg.hvp(tg.sum, ({"a": X},), ({"a": "no"},)), TypeError, ["tangents[0]['a']"]),
        (lambda: tg.grad(lambda x: math.sin(x))(1.0), TypeError, ["tg.sin for math.sin"]),
        (lambda: tg.jacobian(lambda x: np.array([float(x)]))(1.0), TypeError, ["float"]),
    ],
)
def test_errors(call, kind, words):
    with pytest.raises(kind) as caught:
        call()
    assert all(word in str(caught.value) for word in words)


BY_ARGNUMS = ("grad", "value_and_grad", "elementwise_grad", "jacobian", "hessian")


@pytest.mark.parametrize("name", BY_ARGNUMS)
def test_bad_arguments_are_named_by_whom_they_came_to(name):
    transform = getattr(tg, name)

    def raises(kind, *words):
        return pytest.raises(kind, match=f"^{name}: .*" + ".*".join(words))

    with raises(TypeError, "str 'no'", r"argument 0\['a'\]\[1\]"):
        transform(lambda p: tg.sum(p["a"][0]))({"a": [X, "no"]})
    with pytest.raises(TypeError, match=r"complex128.*real"):
        transform(tg.sum)(X * 1j)
    with raises(ValueError, "argnum 1", "1 positional"):
        transform(lambda x, y: tg.sum(x * y), 1)(X, y=X)
    with raises(ValueError, "argnum -2", "1 positional"):
        transform(tg.sum, -2)(X)
    with raises(TypeError, "result", "numbers"):
        transform(lambda x: None)(X)
    with raises(TypeError, "int 3", "a function"):
        transform(3)


def test_an_operation_without_a_second_derivative():
    cube = tg.defop(lambda x: x**3, vjp=lambda g, y, x: g * 3.0 * x**2, name="only_once")

    def f(x):
        return tg.sum(cube(x))

    np.testing.assert_allclose(tg.grad(f)(X), 3 * X**2)
    w = tg.param(X)
    y, before = f(w), len(tg.tape())
    for call in (
        lambda: tg.hessian(f)(X),
        lambda: tg.hvp(f, (X,), (X,)),
        lambda: tg.jacobian(tg.grad(f))(X),
        lambda: tg.grad(lambda x: tg.sum(tg.grad(f)(x)))(X),
        lambda: tg.jvp(tg.grad(f), (X,), (X,)),
        lambda: tg.gradients(y, [w], create_graph=True),
    ):
        with pytest.raises(NotImplementedError, match="only_once: .*jvp="):
            call()
    assert w.grad is None and len(tg.tape()) == before
    y.backward()  # what was recorded is as it was
    np.testing.assert_allclose(w.grad, 3 * X**2)


def test_an_error_inside_leaves_the_scope():
    with pytest.raises(ZeroDivisionError):
        tg.grad(lambda x: x / (1 // 0))(1.0)
    x = tg.param(2.0)
    with pytest.warns(tg.LostGradientWarning):
        assert float(x) == 2.0
