"""`custom_vjp` and `custom_jvp`, against closed forms; each rule is marked by a factor."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tapegraph as tg

X = np.array([0.5, 1.0, -2.0])
Y = np.array([2.0, -1.0, 0.25])


@tg.custom_vjp
def product(x, y):
    """x^2 y, of which the gradient by x is twice what it should be."""
    return x**2 * y


product.defvjp(
    lambda x, y: (product(x, y), (x, y)), lambda r, g: (4 * r[0] * r[1] * g, r[0] ** 2 * g)
)


@tg.custom_jvp
def cube(x):
    """x^3, of which the derivative is ten times what it should be."""
    return x**3


@cube.defjvp
def _cubes(primals, tangents):
    (x,), (t,) = primals, tangents
    return cube(x), 30 * x**2 * t


def test_the_rule_is_the_gradient():
    np.testing.assert_array_equal(product(X, Y), X**2 * Y)
    assert tg.grad(product, (0, 1))(2.0, 3.0) == (24.0, 4.0)
    assert tg.grad(cube)(2.0) == 120.0
    x, y = tg.param(X), tg.param(Y)
    tg.sum(product(x, y)).backward()
    np.testing.assert_array_equal(x.grad, 4 * X * Y)
    np.testing.assert_array_equal(y.grad, X**2)


def test_defaults_are_filled_in():
    @tg.custom_vjp
    def scaled(x, k=3.0):
        return x * k

    scaled.defvjp(lambda x, k: (x * k, (x, k)), lambda held, g: (g * held[1], g * held[0]))
    assert tg.grad(lambda x: scaled(x))(1.0) == 3.0
    assert tg.grad(lambda x: scaled(x, k=5.0))(1.0) == 5.0
    assert tg.grad(scaled, 1)(2.0, 7.0) == 2.0


def test_second_derivatives():
    # d/dx (4 x y), and d/dx (x^2): the rule's own, differentiated.
    assert tg.grad(tg.grad(product))(2.0, 3.0) == 12.0
    assert tg.grad(tg.grad(product, 1))(2.0, 3.0) == 4.0
    assert tg.grad(tg.grad(tg.grad(product)), 1)(2.0, 3.0) == 4.0
    np.testing.assert_allclose(tg.hessian(lambda x: tg.sum(cube(x)))(X), np.diag(60 * X))


def test_forward_mode():
    assert tg.jvp(product, (2.0, 3.0), (1.0, 0.0)) == (12.0, 24.0)
    assert tg.jvp(tg.grad(product), (2.0, 3.0), (1.0, 0.0)) == (24.0, 12.0)
    assert tg.jvp(cube, (2.0,), (0.5,)) == (8.0, 60.0)
    assert tg.jvp(tg.grad(cube), (2.0,), (1.0,)) == (120.0, 120.0)


def test_residual_that_is_the_result():
    """The second derivative goes through the rule of the result, not through its computation."""

    @tg.custom_vjp
    def root(x):
        return tg.tensor(np.sqrt(tg.stop_gradient(x).numpy()))  # which nothing flows through

    def forward(x):
        y = root(x)
        return y, y

    root.defvjp(forward, lambda y, g: (g * 0.5 / y,))
    assert tg.grad(root)(4.0) == 0.25
    np.testing.assert_allclose(tg.grad(tg.grad(root))(4.0), -0.25 * 4.0**-1.5, rtol=1e-15)
    np.testing.assert_allclose(tg.grad(tg.grad(tg.grad(root)))(4.0), 0.375 * 4.0**-2.5, rtol=1e-15)


def test_examples():
    np.testing.assert_array_equal(tg.vmap(tg.grad(product))(X, Y), 4 * X * Y)
    np.testing.assert_array_equal(tg.vmap(tg.grad(product, 1), in_axes=(0, None))(X, 2.0), X**2)
    np.testing.assert_array_equal(tg.vmap(tg.grad(tg.grad(product)))(X, Y), 4 * Y)
    np.testing.assert_array_equal(tg.vmap(tg.grad(cube))(X), 30 * X**2)
    w = tg.param(2.0)
    tg.sum(tg.vmap(product, in_axes=(0, None))(X, w)).backward()
    assert w.grad == np.sum(X**2)
    table = tg.vmap(lambda x: tg.vmap(lambda y: tg.grad(product)(x, y))(Y))(X)
    np.testing.assert_array_equal(table, 4 * X[:, None] * Y)
    tangent = tg.jvp(lambda x: tg.sum(tg.vmap(product)(x, Y)), (X,), (np.ones(3),))[1]
    np.testing.assert_allclose(tangent, np.sum(4 * X * Y), rtol=1e-15)


def test_compiled_steps(backend):
    step = tg.compile(lambda x, y: tg.value_and_grad(product, (0, 1))(x, y))
    second = tg.compile(lambda x: tg.hessian(lambda x: tg.sum(cube(x)))(x))
    batched = tg.compile(lambda x, y: tg.vmap(tg.grad(product))(x, y))
    for n in range(1, 6):
        value, (by_x, by_y) = step(tg.tensor(1.0 * n), tg.tensor(3.0))
        assert (value.item(), by_x.item(), by_y.item()) == (3.0 * n**2, 12.0 * n, 1.0 * n**2)
        assert value.shape == ()
        np.testing.assert_allclose(second(n * X).numpy(), np.diag(60 * n * X))
        np.testing.assert_array_equal(batched(n * X, Y).numpy(), 4 * n * X * Y)


def test_a_step_of_training_compiled(backend):
    w = tg.param([1.0, 2.0])
    optimizer = tg.SGD([w], lr=0.1)

    @tg.compile
    def step(x):
        optimizer.zero_grad()
        tg.sum(cube(w) * x).backward()
        optimizer.step()

    expected = w.numpy()
    for _ in range(5):
        step(np.array([0.01, 0.02]))
        expected = expected - 0.1 * 30 * expected**2 * np.array([0.01, 0.02])
    np.testing.assert_allclose(w.data, expected, rtol=1e-12)


def test_in_the_body_of_a_scan():
    def f(x):
        return tg.scan(lambda c, _: (cube(c), None), x, length=2)[0]

    # Each round multiplies by ten times its derivative: 30 (x^3)^2 30 x^2 = 900 x^8.
    np.testing.assert_allclose(tg.grad(f)(1.1), 900 * 1.1**8, rtol=1e-13)
    np.testing.assert_allclose(tg.vmap(tg.grad(f))(X), 900 * X**8, rtol=1e-13)


def test_in_a_checkpoint():
    assert tg.grad(lambda x: tg.checkpoint(cube)(x) * 2.0)(2.0) == 240.0


def test_trees_keywords_and_fixed_arguments():
    @tg.custom_vjp
    def f(p, scale=2.0):
        return {"a": p["w"] * scale, "b": (tg.sum(p["w"]), p["n"])}

    def backward(w, g):
        return {"w": 100.0 * g["a"] + g["b"][0], "n": 0.0}, None

    f.defvjp(lambda p, scale: (f(p, scale), p["w"]), backward)
    found, pullback = tg.vjp(lambda p: f(p, scale=3.0), {"w": X, "n": 1.0})
    np.testing.assert_array_equal(found["a"], 3 * X)
    grads = pullback({"a": np.ones(3), "b": (5.0, 7.0)})
    np.testing.assert_array_equal(grads["w"], np.full(3, 105.0))

    apply = tg.custom_vjp(lambda g, x: g(x), nondiff_argnums=(0,))
    apply.defvjp(lambda g, x: (g(x), x), lambda g, x, ct: (ct * g(x) * 1000.0,))
    np.testing.assert_allclose(tg.grad(apply, 1)(np.sin, 0.5), 1000 * np.sin(0.5), rtol=1e-15)


def test_complex_numbers():
    f = tg.custom_vjp(lambda z: z**2)
    f.defvjp(lambda z: (z**2, z), lambda z, g: (g * np.conj(2 * z),))
    z = np.array([1 + 2j, 0.5j])
    loss = lambda f: lambda z: tg.sum(tg.abs(f(z)) ** 2)  # noqa: E731
    expected = tg.grad(loss(lambda z: z**2))(z)
    np.testing.assert_allclose(tg.grad(loss(f))(z), expected, rtol=1e-14)
    np.testing.assert_allclose(tg.grad(f, holomorphic=True)(2j), 4j, rtol=1e-15)
    np.testing.assert_allclose(tg.jvp(f, (z,), (1j * z,))[1], 2 * z * 1j * z, rtol=1e-14)


def test_draws_are_the_same_again():
    f = tg.custom_vjp(lambda x: x * tg.random.uniform())

    def forward(x):
        u = tg.random.uniform()
        return x * u, u

    f.defvjp(forward, lambda u, g: (g * u,))
    tg.random.seed(3)
    value, slope = tg.value_and_grad(f)(1.0)
    assert value == slope
    tg.random.seed(3)
    assert tg.jvp(tg.grad(lambda x: f(x) * x), (2.0,), (1.0,)) == (4 * value, 2 * value)


def test_the_function_itself_where_nothing_is_differentiated():
    runs = []
    f = tg.custom_vjp(lambda x: x + 1.0)
    f.defvjp(lambda x: runs.append(1) or (f(x), None), lambda r, g: (g,))
    f(1.0)
    f(tg.tensor(1.0))
    with tg.no_grad():
        f(tg.tensor(1.0))
    assert runs == []
    assert f.__name__ == "<lambda>"


def test_rules_per_argument():
    f = tg.custom_jvp(lambda x, y: x * y)
    f.defjvps(lambda t, z, x, y: 10 * t * y, None)
    assert tg.grad(f, (0, 1))(2.0, 3.0) == (30.0, 0.0)


# ------------------------------------------------------------------ every derivative, everywhere


def _by_vjp():
    f = tg.custom_vjp(lambda x: np.sin(x))
    f.defvjp(lambda x: (f(x), x), lambda x, g: (2 * np.cos(x) * g,))
    return f


def _by_jvp():
    f = tg.custom_jvp(lambda x: np.sin(x))
    f.defjvp(lambda primals, tangents: (f(*primals), 2 * np.cos(primals[0]) * tangents[0]))
    return f


# The value of sin with its marked derivative, 2 cos, and of sin(sin): with both derivatives.
SIN = np.sin(X)
ONCE = SIN, 2 * np.cos(X), -2 * SIN
TWICE = (
    np.sin(SIN),
    4 * np.cos(SIN) * np.cos(X),
    -8 * np.sin(SIN) * np.cos(X) ** 2 - 4 * np.cos(SIN) * SIN,
)

PLACES = {
    "plain": (lambda f: f, ONCE),
    "twice": (lambda f: lambda x: f(f(x)), TWICE),
    "scan": (lambda f: lambda x: tg.scan(lambda c, _: (f(c), None), x, length=2)[0], TWICE),
    "vmap": (tg.vmap, ONCE),
    "checkpoint": (tg.checkpoint, ONCE),
    "cond": (lambda f: lambda x: tg.cond(tg.sum(x) > -9.0, f, f, x), ONCE),
    "while": (
        lambda f: (
            lambda x: tg.while_loop(lambda c: c[1] < 2, lambda c: (f(c[0]), c[1] + 1), (x, 0))[0]
        ),
        TWICE,
    ),
}
AROUND = {
    "eager": lambda derivative: derivative,
    "compiled": lambda derivative: tg.compile(derivative),
    "examples": lambda derivative: lambda x: tg.vmap(derivative)(np.stack([Y, x]))[1],
    "a scan": lambda derivative: (
        lambda x: tg.scan(lambda c, _: (c, derivative(c)), x, length=2)[1][1]
    ),
}


@pytest.mark.parametrize(
    ("place", "around"),
    [
        pytest.param(place, around, marks=() if few else pytest.mark.thorough)
        for place, around in itertools.product(PLACES, AROUND)
        for few in [place in ("twice", "vmap") or around == "eager"]
    ],
)
@pytest.mark.parametrize("rule", [_by_vjp, _by_jvp])
@pytest.mark.one_in(7, start=2)
def test_every_derivative(rule, place, around):
    inside, (value, first, second) = PLACES[place]
    f = inside(rule())
    loss = lambda x: tg.sum(x * f(x))  # noqa: E731
    slope, curvature = value + X * first, 2 * first + X * second
    matrix = np.diag(curvature)
    derivatives = {
        "jvp": (lambda x: tg.jvp(loss, (x,), (Y,))[1], slope @ Y),
        "jacfwd twice": (tg.jacfwd(tg.jacfwd(loss)), matrix),
    }
    if place != "while":  # of which a reverse mode inside others needs max_steps
        derivatives |= {
            "grad": (tg.grad(loss), slope),
            "hvp": (lambda x: tg.hvp(loss, (x,), (Y,)), curvature * Y),
            "grad twice": (tg.grad(lambda x: tg.sum(tg.grad(loss)(x) * Y)), curvature * Y),
            "hessian": (tg.hessian(loss), matrix),
            "jacfwd of grad": (tg.jacfwd(tg.grad(loss)), matrix),
            "jacrev twice": (tg.jacrev(tg.jacrev(loss)), matrix),
            "jacfwd of jacrev": (tg.jacfwd(tg.jacrev(loss)), matrix),
            "jacrev of jacfwd": (tg.jacrev(tg.jacfwd(loss)), matrix),
        }
    for name, (derivative, expected) in derivatives.items():
        whole = AROUND[around](derivative)
        for _ in range(3 if around == "compiled" else 1):  # the third call runs the program
            found = whole(X)
        np.testing.assert_allclose(tg.tensor(found).data, expected, 1e-12, 1e-12, err_msg=name)


def test_a_rule_that_closes_over_an_example():
    def of(k):
        f = tg.custom_jvp(lambda x: np.sin(x))
        f.defjvp(lambda primals, tangents: (f(*primals), k * np.cos(primals[0]) * tangents[0]))
        return f

    jvp = lambda f, x: tg.jvp(f, (x,), (1.0,))[1]  # noqa: E731
    for derivative, expected in (
        (lambda k: jvp(of(k), 2.0), np.cos(2.0)),
        (lambda k: tg.grad(tg.grad(of(k)))(2.0), -np.sin(2.0)),
        (lambda k: jvp(lambda x: jvp(of(k), x), 2.0), -np.sin(2.0)),
    ):
        np.testing.assert_allclose(tg.vmap(derivative)(Y), Y * expected, rtol=1e-14)


# ------------------------------------------------------------------ what is refused


def test_without_a_rule():
    with pytest.raises(RuntimeError, match=r"Write sin\.defvjp\(forward, backward\)"):
        tg.custom_vjp(np.sin)(1.0)
    with pytest.raises(RuntimeError, match=r"has no rule\. Write sin\.defjvp\(rule\)"):
        tg.custom_jvp(np.sin)(1.0)


def test_closed_over_tensors_that_need_a_gradient():
    def of(v):
        f = tg.custom_vjp(lambda x: x * v)
        f.defvjp(lambda x: (x * v, None), lambda r, g: (g * v,))
        return f

    text = "closes over a tensor that needs a gradient"
    with pytest.raises(RuntimeError, match=text):
        tg.grad(of(tg.param(3.0)))(2.0)
    with pytest.raises(RuntimeError, match=text):
        tg.jvp(lambda v: of(v)(v), (2.0,), (1.0,))
    with pytest.raises(RuntimeError, match=text):
        tg.grad(lambda v: of(v)(v))(2.0)
    assert tg.grad(of(tg.tensor(3.0)))(2.0) == 3.0


def test_tangents_beside_examples():
    k = np.array([1.0, 2.0])  # the arguments of the rules are the same for both examples
    for f, slope in ((cube, 120.0), (lambda x: product(x, 3.0), 24.0)):
        found = tg.vmap(lambda k, f=f: tg.jvp(lambda x, k: k * f(x), (2.0, k), (1.0, k)))(k)
        value = f(2.0)
        np.testing.assert_array_equal(found[0], value * k)
        np.testing.assert_array_equal(found[1], (slope + value) * k)


@pytest.mark.parametrize(
    ("forward", "backward", "error", "text"),
    [
        (lambda x: x, lambda r, g: (g,), TypeError, "a pair: the result, and residuals"),
        (lambda x: (x, x), lambda r, g: g, TypeError, "a gradient for each argument"),
        (lambda x: (x, x), lambda r, g: (g, g), TypeError, "a tuple of 2 from the backward"),
        (lambda x: (x, x), lambda r, g: (tg.sum(g),), ValueError, r"received shape \(\)"),
        (lambda x: (x, x), lambda r, g: ([g],), ValueError, "structure"),
    ],
)
def test_rules_of_another_form(forward, backward, error, text):
    f = tg.custom_vjp(lambda x: x)
    f.defvjp(forward, backward)
    with pytest.raises(error, match=text):
        tg.grad(lambda x: tg.sum(f(x)))(X)


def test_a_rule_that_gives_no_pair():
    f = tg.custom_jvp(lambda x: x)
    f.defjvp(lambda primals, tangents: tangents[0])
    with pytest.raises(TypeError, match="a pair: result and tangent"):
        tg.grad(f)(1.0)


def test_a_closed_over_example():
    def of(v):
        f = tg.custom_vjp(lambda x: x * v)
        f.defvjp(lambda x: (x * v, None), lambda r, g: (10 * g * v,))
        return f

    np.testing.assert_array_equal(tg.vmap(lambda x, v: tg.grad(of(v))(x))(X, Y), 10 * Y)
    step = tg.compile(lambda x, v: tg.vmap(lambda x, v: tg.grad(of(v))(x))(x, v))
    with pytest.raises(RuntimeError, match="differs among the examples of vmap"):
        step(X, Y)
