"""Forward mode against reverse mode, finite differences and closed forms."""

from __future__ import annotations

import functools
import math
import operator
import threading

import numpy as np
import pytest
from promises import named

import tapegraph as tg
from tapegraph import fallback
from tapegraph.differentiation.jvps import JVPS
from tapegraph.differentiation.slopes import SLOPES
from tapegraph.recording.linearize import linearize
from tapegraph.recording.op import OPS, Op
from tapegraph.recording.record import apply
from tests.cases import CASES, COMPLEX_CASES, ComplexCase
from tests.ops.test_zero_stays_zero import MASKED, REAL
from tests.quick import a_few_each, check_each, each_operation, in_one, thinned


@pytest.fixture(autouse=True)
def native_engine():
    tg.set_backend("native")


def away(*shape, seed=7):
    """Numbers of both signs, away from the kinks at 0."""
    rng = np.random.default_rng(seed)
    return rng.uniform(0.3, 1.5, shape) * rng.choice([-1.0, 1.0], shape)


def positive(*shape, seed=7):
    return np.random.default_rng(seed).uniform(0.4, 1.6, shape)


X, Y = away(2, 3), away(3)


def directions(points):
    draw = np.random.default_rng(11)
    return tuple(draw.uniform(0.5, 1.5, np.shape(p)).astype(p.dtype) for p in points)


def difference(f, points, tangents, h=6e-6):
    """The derivative along a direction by two-sided finite differences."""
    ends = []
    for sign in (1, -1):
        moved = [p + sign * h * np.asarray(t) for p, t in zip(points, tangents, strict=True)]
        ends.append(np.asarray(f(*moved)))
    return (ends[0] - ends[1]) / (2 * h)


def reverse(f, points, seed):
    """The gradients by reverse mode, zero for an input that is not used."""
    leaves = [tg.param(p) for p in points]
    out = f(*leaves)
    if out.requires_grad:
        out.backward(seed)
    return [
        np.zeros_like(p) if x.grad is None else x.grad for p, x in zip(points, leaves, strict=True)
    ]


DIFFERENTIABLE = {name for name, op in OPS.items() if op.differentiable != ()}

# -- every operation ---------------------------------------------------------------------------


def test_every_operation_has_a_rule():
    assert set(JVPS) < DIFFERENTIABLE
    for name in DIFFERENTIABLE - set(JVPS):  # whose gradient rule is transposed
        assert fallback.recorded_row(OPS[name])


@pytest.mark.thorough
@in_one("op", sorted(DIFFERENTIABLE - set(SLOPES)))
def test_a_captured_step_holds_it(op):
    case = next(case for case in CASES + COMPLEX_CASES if case.op == op)
    complex_case = isinstance(case, ComplexCase)
    f = case.run if complex_case else case.function()
    points = [np.asarray(x) for x in (case.inputs if complex_case else case.arrays())]
    tangents = directions(points)
    step = tg.compile(lambda points, tangents: tg.jvp(f, tuple(points), tuple(tangents)))
    want = tg.jvp(f, points, tangents)
    for _ in range(4):
        for ours, theirs in zip(step(points, tangents), want, strict=True):
            np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-10, atol=1e-12)


def agrees_with_reverse_mode(case, dtype):
    f, points = case.function(dtype), case.arrays(dtype)
    tangents = directions(points)
    with np.errstate(all="warn" if case.smooth else "ignore"):
        value, tangent = tg.jvp(f, points, tangents)
        expected = f(*map(tg.tensor, points))
        (seed,) = directions([value])
        grads = reverse(f, points, seed)
    assert type(value) is type(tangent) is np.ndarray
    assert value.shape == tangent.shape
    assert value.dtype == tangent.dtype == expected.dtype
    np.testing.assert_array_equal(value, expected.data)
    products = [g * t for g, t in zip(grads, tangents, strict=True)]
    scale = 1.0 + sum(np.abs(p[np.isfinite(p)]).sum() for p in products)
    tolerance = 1e-12 if dtype is np.float64 else 1e-5
    with np.errstate(invalid="ignore"):  # inf - inf at a singular point
        forward, backward = np.sum(seed * tangent), sum(map(np.sum, products))
    np.testing.assert_allclose(forward, backward, rtol=tolerance, atol=scale * tolerance)


def agrees_with_finite_differences(case):
    f, points = case.function(), case.arrays()
    tangents = directions(points)
    _, tangent = tg.jvp(f, points, tangents)
    expected = difference(lambda *xs: f(*map(tg.tensor, xs)), points, tangents)
    np.testing.assert_allclose(tangent, expected, rtol=1e-6, atol=1e-7)


def operands_one_by_one_add_up_to_all(case):
    f, points = case.function(), case.arrays()
    tangents = directions(points)
    _, together = tg.jvp(f, points, tangents)
    total = 0.0
    for i, (point, t) in enumerate(zip(points, tangents, strict=True)):

        def alone(x, i=i):
            return f(*(x if j == i else tg.tensor(p) for j, p in enumerate(points)))

        _, part = tg.jvp(alone, (point,), (t,))
        assert part.shape == together.shape
        total = total + part
    np.testing.assert_allclose(total, together, rtol=1e-10, atol=1e-12)


def forward_over_forward(case):
    f, points = case.function(), case.arrays()
    tangents = directions(points)

    def slope(*xs):
        return tg.jvp(f, xs, tangents)[1]

    _, second = tg.jvp(slope, points, tangents)
    expected = difference(slope, points, tangents)
    np.testing.assert_allclose(second, expected, rtol=1e-5, atol=1e-6)


def reverse_over_forward(case):
    f, points = case.function(), case.arrays()
    tangents = directions(points)
    (seed,) = directions([tg.jvp(f, points, tangents)[0]])

    def slope(*xs):
        return tg.sum(seed * tg.jvp(f, xs, tangents)[1])

    grads = reverse(slope, points, None)
    expected = difference(lambda *xs: slope(*xs).data, points, tangents)
    got = sum(np.vdot(g, t) for g, t in zip(grads, tangents, strict=True))
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@functools.cache
def told_apart():
    """Return the smooth cases that record an operation in a way that none before them did.

    A way is its attributes, and which operands are parameters, constants, scalars and results.
    """
    ways, chosen = set(), set()
    for case in CASES:
        if case.smooth:
            out = case.function()(*map(tg.param, case.arrays()))
            entries = list(linearize([out]))
            recorded = {
                (
                    e.op,
                    repr(e.attrs),
                    *(entries[i].op if not entries[i].inputs else "" for i in e.inputs),
                )
                for e in entries
                if e.inputs
            }
            if recorded - ways:
                chosen.add(case.id)
            ways |= recorded
    return chosen


FIRST = {case.id for case in a_few_each(CASES, most=1)}


@each_operation(CASES)
def test_case_keeps_every_promise(op, thorough):
    check_each(op, CASES, lambda case: keeps_every_promise(case, thorough))


def keeps_every_promise(case, thorough):
    for dtype in (np.float64, np.float32) if thorough or case.id in FIRST else (np.float64,):
        with named(f"agrees_with_reverse_mode ({dtype.__name__})"):
            agrees_with_reverse_mode(case, dtype)
    promises = []
    if case.smooth:
        if thorough or case.id in FIRST:  # test_ops.py compares reverse mode with differences
            promises.append(agrees_with_finite_differences)
        if len(case.inputs) > 1:
            promises.append(operands_one_by_one_add_up_to_all)
        if thorough or case.id in told_apart():
            promises += [forward_over_forward, reverse_over_forward]
    for promise in promises:
        with named(promise.__name__):
            promise(case)


# -- operators ---------------------------------------------------------------------------------

OTHERS = {
    "float": 1.7,
    "int": 2,
    "numpy scalar": np.float64(1.7),
    "0-d": np.array(1.7),
    "array": np.array([0.5, 1.5, 2.5]),
    "list": [0.5, 1.5, 2.5],
    "tensor": tg.tensor([0.5, 1.5, 2.5]),
}


@in_one(
    ("name", "other"),
    [
        (name, other)
        for name in ("add", "sub", "mul", "truediv", "pow", "matmul")
        for other in OTHERS
        if name != "matmul" or np.ndim(OTHERS[other])  # 0-d operands have no matrix product
    ],
)
def test_both_operand_orders(name, other):
    op, c = getattr(operator, name), OTHERS[other]
    x, t = positive(3), positive(3, seed=8)
    for f in (lambda x: op(x, c), lambda x: op(c, x)):
        value, tangent = tg.jvp(f, (x,), (t,))
        leaf = tg.param(x)
        y = f(leaf)
        np.testing.assert_array_equal(value, y.data)
        np.testing.assert_allclose(tangent, difference(f, (x,), (t,)), rtol=1e-6)


def test_dual_offers_what_tensor_offers():
    of_reverse_mode = {
        "assign", "attrs", "backward", "grad", "inputs", "name", "op",
        "requires_grad_", "retain_grad", "zero_grad",
    }  # fmt: skip
    public = {name for name in dir(tg.Tensor) if not name.startswith("_")}
    assert public - of_reverse_mode - set(dir(tg.Dual)) == set()


@pytest.mark.parametrize("name", ["tanh", "softmax", "flatten", "transpose", "sum", "mean", "abs"])
def test_methods_are_the_functions(name):
    x = tg.Dual(X, np.ones_like(X))
    got, want = getattr(x, name)(), getattr(tg, name, tg.transpose)(x)
    if name == "flatten":
        want = tg.reshape(x, -1)
    np.testing.assert_array_equal(got.data, want.data)
    np.testing.assert_array_equal(got.tangent.data, want.tangent.data)


def test_python_only_code():
    def f(x):
        total = 0
        for k, part in enumerate([x, +x, -x, abs(x)]):
            if part > 0:
                total += (k + 1) * part
        return max(total, -total)

    assert tg.jvp(f, (2.0,), (1.0,)) == (14.0, 7.0)
    assert tg.jvp(f, (-2.0,), (1.0,)) == (14.0, -7.0)


def test_iteration_and_length():
    def f(x):
        assert len(x) == 3
        a, b, c = x
        return a * b * c

    assert tg.jvp(f, (np.array([2.0, 3.0, 4.0]),), ([1.0, 0.0, 0.0],))[1] == 12.0
    with pytest.raises(TypeError, match="len: .*0-d"):
        len(tg.Dual(1.0, 1.0))
    with pytest.raises(TypeError, match="iter: .*0-d"):
        iter(tg.Dual(1.0, 1.0))


def test_length_in_a_compiled_step():
    """It is of the structure: nothing of what is recorded to be run again leaves the program."""

    @tg.compile
    def step(x):
        return tg.jvp(lambda x: tg.sum(x**2) / len(x), (x,), (np.ones(3),))[1]

    for x in (np.array([1.0, 2.0, 3.0]), np.zeros(3), np.ones(3)):
        assert step(x).item() == pytest.approx(2 * x.sum() / 3)


def test_value_of_a_dual():
    x = tg.Dual([1.0, -2.0], [3.0, 4.0])
    assert (x.shape, x.ndim, x.size, x.dtype) == ((2,), 1, 2, np.float64)
    assert (x > 0).tolist() == [True, False] == (x >= tg.tensor([1.0, 0.0])).tolist()
    assert (x == [1.0, 2.0]).tolist() == [True, False]
    assert (x != tg.Dual([1.0, 2.0], [0.0, 0.0])).tolist() == [False, True]
    assert (np.array([0.0, 0.0]) < x).tolist() == [True, False]
    assert (tg.tensor([0.0, 0.0]) <= x).tolist() == [True, False]
    assert x.numpy().tolist() == x.data.tolist() == x.detach().data.tolist() == [1.0, -2.0]
    assert isinstance(x.detach(), tg.Tensor)
    y = tg.Dual(2.5, 1.0)
    assert (bool(y), y.item(), f"{y:.2f}") == (True, 2.5, "2.50")
    assert len({y, x, y}) == 2
    with pytest.raises(ValueError, match="read-only"):
        x.data[0] = 0.0
    with pytest.raises(TypeError, match=r"x\.numpy\(\)"):
        np.asarray(x)


def test_repr():
    assert repr(tg.Dual(2.0, 1.0)) == "Dual(2., tangent=1.)"
    x = tg.Dual(np.float32([1, 2]), [0, 1])
    assert repr(x) == "Dual([1., 2.], dtype=float32, tangent=[0., 1.], dtype=float32)"
    nested = tg.Dual(tg.Dual(2.0, 1.0), 0.5, tag=1)
    assert repr(nested) == "Dual(Dual(2., tangent=1.), tangent=0.5)"


def test_duals_by_hand_share_one_level():
    z = tg.Dual(2.0, 1.0) * tg.Dual(3.0, 10.0)
    assert (z.primal.item(), z.tangent.item()) == (6.0, 23.0)


# -- orders ------------------------------------------------------------------------------------


def nth(f, n):
    for _ in range(n):
        f = tg.grad(f)
    return f


@pytest.mark.parametrize("order", [1, 2, 3, 4])
@pytest.mark.parametrize("x", [0.7, -1.3])
def test_higher_derivatives(order, x):
    d = nth(tg.sin, order)(x)
    assert math.isclose(d, math.sin(x + order * math.pi / 2), rel_tol=1e-12)
    assert math.isclose(
        nth(lambda x: tg.exp(2.0 * x), order)(x), 2.0**order * math.exp(2.0 * x), rel_tol=1e-12
    )
    for n in range(7):
        expected = math.perm(n, order) * x ** max(n - order, 0)
        assert math.isclose(nth(lambda x, n=n: x**n, order)(x), expected, rel_tol=1e-12)
        assert nth(lambda x, n=n: x**n, order)(0.0) == math.perm(n, order) * (n == order)
    signs = math.factorial(order) * (-1) ** order
    assert math.isclose(nth(lambda x: 1 / x, order)(x), signs / x ** (order + 1), rel_tol=1e-12)


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "gelu", "silu", "tan", "log", "sqrt"])
@pytest.mark.parametrize("order", [2, 3])
def test_higher_derivatives_by_differences(name, order):
    f = getattr(tg, name)
    expected = difference(lambda x: nth(f, order - 1)(float(x)), (np.array(0.6),), (1.0,))
    assert math.isclose(nth(f, order)(0.6), expected, rel_tol=1e-6)


def test_mixed_partials():
    def f(x, y):
        return x**2 * y**3 + tg.sin(x * y)

    x, y = 0.4, 1.3
    xy = tg.grad(tg.grad(f, 0), 1)(x, y)
    closed = 6 * x * y**2 + math.cos(x * y) - x * y * math.sin(x * y)
    assert math.isclose(xy, closed, rel_tol=1e-12)
    assert math.isclose(tg.grad(tg.grad(f, 1), 0)(x, y), closed, rel_tol=1e-12)


@pytest.mark.parametrize("b", [0.0, 0.5, 2.0])
def test_mixed_partials_of_a_power(b):
    a = 1.7
    closed = a ** (b - 1) * (1 + b * math.log(a))
    assert math.isclose(tg.grad(tg.grad(tg.pow, 0), 1)(a, b), closed, rel_tol=1e-12)
    assert math.isclose(tg.grad(tg.grad(tg.pow, 1), 0)(a, b), closed, rel_tol=1e-12)


def test_a_tangent_that_is_zero_but_varies():
    # d/dx [cos(1) x] at x = 0: the inner tangent is zero, its derivative is not.
    assert tg.grad(lambda x: tg.jvp(tg.sin, (1.0,), (x,))[1])(0.0) == math.cos(1.0)
    x = tg.param(0.0)
    tg.jvp(tg.sin, (1.0,), (x,))[1].backward()
    assert x.grad == math.cos(1.0)


# -- hygiene -----------------------------------------------------------------------------------


def test_no_perturbation_confusion():
    D = tg.grad
    assert D(lambda x: x * D(lambda y: x + y)(1.0))(1.0) == 1.0
    assert D(lambda x: x * D(lambda y: x * y)(1.0))(4.0) == 8.0
    assert D(lambda x: x * D(lambda y: x)(2.0))(3.0) == 0.0
    assert D(lambda x: D(lambda y: x * y * y)(x))(3.0) == 12.0
    assert D(lambda x: D(lambda y: D(lambda z: x * y * z)(y))(x))(5.0) == 1.0


def test_closures_over_an_outer_level():
    def outer(x):
        inner = tg.grad(lambda y: tg.sin(x * y) * y)
        return inner(2.0) * x

    def closed(x):
        return (x * 2.0 * np.cos(2.0 * x) + np.sin(2.0 * x)) * x

    expected = difference(closed, (np.array(0.8),), (1.0,))
    assert math.isclose(tg.grad(outer)(0.8), expected, rel_tol=1e-8)


def test_an_outer_dual_passes_through_an_inner_level():
    out = tg.grad(lambda y: tg.Dual(3.0, 1.0) * y**2)(2.0)
    assert isinstance(out, tg.Dual)
    assert (out.primal.item(), out.tangent.item()) == (12.0, 4.0)


def test_threads_do_not_mix_levels():
    results = []

    def work(x):
        for _ in range(20):
            results.append(nth(tg.sin, 3)(x) + math.cos(x))

    threads = [threading.Thread(target=work, args=(k / 3,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 80
    np.testing.assert_allclose(results, 0.0, atol=1e-12)


# -- with reverse mode -------------------------------------------------------------------------


def hvp(f, w, v):
    leaf = tg.param(w)
    tg.jvp(f, (leaf,), (v,))[1].backward()
    return leaf.grad


def test_hessian_vector_products():
    A, w, v = away(4, 4), away(4), away(4, seed=8)
    np.testing.assert_allclose(hvp(lambda w: w @ A @ w, w, v), (A + A.T) @ v)
    np.testing.assert_allclose(hvp(lambda w: tg.sum(w**3), w, v), 6 * w * v)
    p = np.exp(w) / np.exp(w).sum()
    expected = p * v - p * (p @ v)
    np.testing.assert_allclose(hvp(lambda w: tg.log(tg.sum(tg.exp(w))), w, v), expected)
    np.testing.assert_allclose(
        hvp(lambda w: tg.softmax_crossentropy(w, 2), w, v), expected, atol=1e-14
    )


def test_third_order_by_reverse_over_two_forwards():
    w, v = away(3), away(3, seed=8)

    def second(w):
        return tg.jvp(lambda w: tg.jvp(lambda w: tg.sum(w**4), (w,), (v,))[1], (w,), (v,))[1]

    leaf = tg.param(w)
    second(leaf).backward()
    np.testing.assert_allclose(leaf.grad, 24 * w * v * v)


def test_a_parameter_in_the_closure_keeps_its_history():
    w = tg.param(3.0)
    value, tangent = tg.jvp(lambda x: w * x**2, (2.0,), (1.0,))
    assert value.requires_grad and tangent.requires_grad
    tangent.backward()
    assert w.grad == 4.0
    slope = tg.grad(lambda x: w * x**2)(2.0)
    slope.backward()
    assert w.grad == 8.0


def test_no_grad_stops_recording_not_tangents():
    w = tg.param(3.0)
    with tg.no_grad():
        assert tg.jvp(lambda x: w * x, (2.0,), (1.0,)) == (6.0, 3.0)


def test_nothing_is_recorded_for_plain_inputs():
    tg.tape_reset()
    tg.jvp(lambda x: tg.sum(tg.sin(x) @ x), (X[:, :2],), (X[:, :2],))
    assert len(tg.tape()) == 0


# -- singular points and conventions -----------------------------------------------------------

SINGULAR = {
    "sqrt": (lambda x: tg.where(x > 0, tg.sqrt(x), 0.0), [-1.0, 0.0], [1.0, 1.0]),
    "sqrt inside": (lambda x: tg.sqrt(tg.where(x > 0, x, 0.0)), [-1.0], [1.0]),
    "log": (lambda x: tg.where(x > 0, tg.log(x), 0.0), [-1.0, 0.0], [1.0, 1.0]),
    "log inside": (lambda x: tg.where(x > 0, 1.0, tg.log(x * 0.0)) * 1.0, [1.0], [1.0]),
    "div": (lambda x: tg.where(x > 0, 1.0 / x, 0.0), [0.0], [1.0]),
    "div inside": (lambda x: 1.0 / tg.where(x > 0, x, 0.0), [0.0], [1.0]),
    "div numerator": (lambda x: (x * 0.0) / np.zeros(1), [1.0], [1.0]),
    "pow": (lambda x: tg.where(x > 0, x**0.5, 0.0), [-1.0, 0.0], [1.0, 1.0]),
    "pow inside": (lambda x: tg.where(x > 0, x, 0.0) ** 0.5, [-1.0], [1.0]),
    "mul": (lambda x: tg.relu(x) * np.inf, [-1.0], [1.0]),
    "norm": (lambda x: tg.sqrt(tg.sum(x * x)), [0.0, 0.0], [1.0, 2.0]),
    "loss at its target": (lambda x: tg.mse_loss(tg.sqrt(x), np.zeros(1)), [0.0], [1.0]),
    "matmul": (lambda x: tg.relu(x) @ np.array([[np.inf], [np.nan]]), [-1.0, -1.0], [1.0, 1.0]),
    "matmul right": (lambda x: np.array([np.inf, np.nan]) @ tg.relu(x), [-1.0, -2.0], [1.0, 1.0]),
    "zero direction": (lambda x: tg.sqrt(x) + tg.log(x) + 1.0 / x, [0.0], [0.0]),
    "relu at 0": (tg.relu, [0.0], [1.0]),
    "abs at 0": (tg.abs, [0.0], [1.0]),
    "0**0 by base": (lambda x: x ** np.zeros(1), [0.0], [1.0]),
    "0**0 by base, number": (lambda x: x**0, [0.0], [1.0]),
    "exponent of 0": (lambda x: np.zeros(1) ** x, [2.0], [1.0]),
    "exponent of -1": (lambda x: np.array([-1.0]) ** x, [2.0], [1.0]),
    "exponent of a negative number": (lambda x: (-2.0) ** x, [2.0], [1.0]),
}


@in_one("case", list(SINGULAR))
def test_zero_stays_zero(case):
    f, x, t = SINGULAR[case][0], *map(np.array, SINGULAR[case][1:])
    with np.errstate(all="ignore"):
        _, tangent = tg.jvp(f, (x,), (t,))
        np.testing.assert_array_equal(tangent, np.zeros_like(tangent))

        _, second = tg.jvp(lambda x: tg.jvp(f, (x,), (t,))[1], (x,), (np.zeros_like(x),))
        np.testing.assert_array_equal(second, np.zeros_like(second))


@pytest.mark.parametrize("case", ["sqrt", "sqrt inside", "log", "div", "pow", "pow inside", "mul"])
def test_masked_points_at_second_order(case):
    f, x, t = SINGULAR[case][0], *map(np.array, SINGULAR[case][1:])
    with np.errstate(all="ignore"):
        _, second = tg.jvp(lambda x: tg.jvp(f, (x,), (t,))[1], (x,), (t,))
        np.testing.assert_array_equal(second, np.zeros_like(second))
        leaf = tg.param(x)
        out = tg.sum(tg.jvp(f, (leaf,), (t,))[1])
        if out.requires_grad:
            out.backward()
            np.testing.assert_array_equal(leaf.grad, np.zeros_like(x))


# Points and directions, and by function the closed forms of the derivative there.
nan, inf = math.nan, math.inf
POINTS = (
    ([1.0, 1.0, 1.0], [1.0, 0.0, 0.0]),
    ([0.0, 0.0, 0.0], [0.0, 1.0, 0.0]),
    ([nan, 3.0, 4.0], [0.0, 1.0, 0.0]),
    ([inf, -inf, 1.0], [0.0, 0.0, 1.0]),
)
THIRDS, TURNED = np.array([2.0, -1.0, -1.0]) / 3.0, np.array([-1.0, 2.0, -1.0]) / 3.0
LOG_2 = math.log(2.0)
CLOSED_FORMS = {
    "std": (np.std, 0, 0, nan, nan),
    "var": (np.var, 0, 0, nan, nan),
    "nanstd": (np.nanstd, 0, 0, -0.5, nan),
    "nanmean": (np.nanmean, 1 / 3, 1 / 3, 1 / 2, 1 / 3),
    "nanmean of none": (lambda x: np.nanmean(np.where(x == 9, x, nan)), 0, 0, 0, 0),
    "standardised": (
        lambda x: (x - x.mean()) / (x.std() + 1e-5),
        *(THIRDS * 1e5, TURNED * 1e5, [nan] * 3, [nan] * 3),
    ),
    "norm": (np.linalg.norm, 3**-0.5, 0, nan, 0),
    "hypot": (lambda x: np.hypot(x[0], x[1]), 2**-0.5, 0, nan, 0),
    "logsumexp": (tg.logsumexp, 1 / 3, 1 / 3, nan, 0),
    "log_softmax": (tg.log_softmax, THIRDS, TURNED, [nan] * 3, [0, 0, 1]),
    "softmax": (tg.softmax, THIRDS / 3, TURNED / 3, [nan] * 3, [nan] * 3),
    "logaddexp": (lambda x: np.logaddexp(x[0], x[2]), 0.5, 0, 0, 0),
    "x log x": (
        lambda x: np.where(x > 0, x * np.log(x), 0.0),
        *([1, 0, 0], [0, 0, 0], [0, math.log(3) + 1, 0], [0, 0, 1]),
    ),
    "masked root": (
        lambda x: np.where(x > 0, np.sqrt(x), 0.0),
        *([0.5, 0, 0], [0, 0, 0], [0, 12**-0.5, 0], [0, 0, 0.5]),
    ),
    "masked reciprocal": (
        lambda x: np.where(x != 0, 1 / x, 0.0),
        *([-1, 0, 0], [0, 0, 0], [0, -1 / 9, 0], [0, 0, -1]),
    ),
    "relu of log": (
        lambda x: tg.relu(np.log(x)),
        *([0, 0, 0], [0, 0, 0], [0, 1 / 3, 0], [0, 0, 0]),
    ),
    "prod": (np.prod, 1, 0, nan, -inf),
    "cumprod": (np.cumprod, [1, 1, 1], [0, 0, 0], [0, nan, nan], [0, 0, -inf]),
    "max": (np.max, 1 / 3, 1 / 3, 0, 0),
    "fmax": (lambda x: np.fmax(x[0], x[1]), 0.5, 0.5, 1, 0),
    "clip": (lambda x: np.clip(x, 0.5, 3.5), [1, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 1]),
    "root inside": (
        lambda x: np.where(x > 0, x, 0.0) ** 0.5,
        *([0.5, 0, 0], [0, 0, 0], [0, 12**-0.5, 0], [0, 0, 0.5]),
    ),
    "square": (np.square, [2, 0, 0], [0, 0, 0], [0, 6, 0], [0, 0, 2]),
    "exponential": (
        lambda x: 2.0**x,
        *([2 * LOG_2, 0, 0], [0, LOG_2, 0], [0, 8 * LOG_2, 0], [0, 0, 2 * LOG_2]),
    ),
    "sort": (np.sort, [1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 1, 0]),
}


def planned(f):
    """Return a compiled function that has its plan, made of numbers without a singular point."""
    step = tg.compile(f)
    for _ in range(5):
        step(np.array([1.0, 2.0, 3.0]), np.ones(3))
    return lambda *args: step(*args).numpy()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("case", thinned(CLOSED_FORMS, 2))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_zeros_absorb_alike_in_every_mode(case):
    f, *closed_forms = CLOSED_FORMS[case]
    along = lambda x, t: tg.jvp(f, (x,), (t,))[1]  # noqa: E731
    in_a_loop = lambda x: tg.scan(lambda c, x: (c, f(x)), 0.0, x[None])[1][0]  # noqa: E731
    bend = lambda x, t: tg.hvp(lambda x: tg.sum(f(x) * f(x)), (x,), (t,))  # noqa: E731
    step, columns, second = planned(along), planned(lambda x, t: tg.jacfwd(f)(x)), planned(bend)
    for (x, t), expected in zip(POINTS, closed_forms, strict=True):
        x, t = np.array(x), np.array(t)
        want = along(x, t)
        np.testing.assert_allclose(want, expected, rtol=1e-12)
        np.testing.assert_array_equal(step(x, t), want)
        np.testing.assert_array_equal(columns(x, t), tg.jacfwd(f)(x))
        np.testing.assert_array_equal(second(x, t), bend(x, t))
        np.testing.assert_array_equal(tg.jvp(in_a_loop, (x,), (t,))[1], want)
        np.testing.assert_allclose(tg.linearize(f, x)[1](t), want, rtol=1e-12, atol=1e-15)
        reverse = tg.jacobian(f)(x)[..., t != 0].sum(axis=-1)
        np.testing.assert_allclose(reverse, want, rtol=1e-12, atol=1e-15)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("case", ["std", "standardised", "log_softmax", "nanstd"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_zeros_absorb_in_a_graph(case):
    tg.set_backend("tensorflow")
    f, *closed_forms = CLOSED_FORMS[case]
    step = planned(lambda x, t: tg.jvp(f, (x,), (t,))[1])
    for (x, t), expected in zip(POINTS, closed_forms, strict=True):
        np.testing.assert_allclose(step(np.array(x), np.array(t)), expected, rtol=1e-12)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_direction_along_which_nothing_moves():
    x, t = np.array([nan, 1.0, 2.0]), np.ones(3)
    along = lambda x, t: tg.jvp(np.var, (x,), (t,))[1]  # noqa: E731
    assert along(x, t) == planned(along)(x, t) == 0.0
    assert np.isnan(tg.grad(np.var)(x)).all()
    assert np.isnan(along(x, np.array([1.0, 0.0, 0.0])))


def test_masks_of_a_dual_are_made_anew_by_every_run():
    @tg.compile
    def masked(x):
        def f(x):
            chosen = (x > 0) & np.isfinite(x) & (np.arange(3) != np.argmax(x))
            return np.where(chosen, x * x, 0.0)

        return tg.jvp(f, (x,), (np.ones(3),))[1]

    for x in ([1.0, 2.0, 3.0],) * 5 + ([-1.0, 2.0, 3.0], [3.0, 2.0, inf], [4.0, 3.0, 2.0]):
        x = np.array(x)
        kept = (x > 0) & np.isfinite(x) & (np.arange(3) != x.argmax())
        np.testing.assert_array_equal(masked(x).numpy(), np.where(kept, 2.0 * x, 0.0))


@in_one("case", list(MASKED))
def test_masked_elements_agree_with_reverse_mode(case):
    f, point, expected = MASKED[case]
    with np.errstate(all="ignore"):
        got = tg.grad(lambda x: tg.sum(f(x)))(np.array(point))
    expected = np.array(expected)
    np.testing.assert_array_equal(got[expected == 0], 0.0)
    np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.parametrize("case", list(REAL))
def test_real_nan_and_inf_are_kept(case):
    f, point, expected = REAL[case]
    with np.errstate(all="ignore"):
        got = tg.grad(lambda x: tg.sum(f(x)))(np.array(point))
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_the_masked_function_of_the_specification():
    with np.errstate(invalid="ignore"):
        x = np.array([-1.0, 4.0])
        out = tg.jvp(lambda x: tg.where(x > 0, tg.sqrt(x), 0), (x,), ([1.0, 1.0],))
    np.testing.assert_array_equal(out, [[0.0, 2.0], [0.0, 0.25]])


def test_max_pool_takes_the_first_maximum():
    x = np.ones((1, 1, 2, 2))
    t = np.arange(1.0, 5.0).reshape(x.shape)
    assert tg.jvp(lambda x: tg.max_pool2d(x, 2), (x,), (t,))[1].item() == 1.0


def test_max_pool_of_nothing_but_minus_infinity():
    x, t = np.full((1, 1, 2, 2), -np.inf), np.arange(1.0, 5.0).reshape(1, 1, 2, 2)
    _, tangent = tg.jvp(lambda x: tg.max_pool2d(x, 2, pad=1), (x,), (t,))
    np.testing.assert_array_equal(tangent, t)  # each window holds one pixel, and padding


# -- what goes in and comes out ----------------------------------------------------------------


def test_floats_in_floats_out():
    value, tangent = tg.jvp(lambda x: x**3 - 2 * x + 5, (2.5,), (2,))
    assert (type(value), value, type(tangent), tangent) == (float, 15.625, float, 33.5)
    assert tg.grad(lambda x: x**3 - 2 * x + 5)(2.5) == 16.75
    assert type(tg.grad(lambda x: x * x)(3)) is float
    assert type(tg.grad(lambda x: x * x)(np.float32(3))) is float
    value, tangent = tg.jvp(lambda x: x * np.ones(2), (2.0,), (1.0,))
    assert value.tolist() == [2.0, 2.0] and tangent.tolist() == [1.0, 1.0]


def test_arrays_in_arrays_out():
    for part in tg.jvp(tg.sum, (X,), (X,)):
        assert type(part) is np.ndarray and part.shape == ()
    assert type(tg.grad(lambda x: x * x)(np.array(3.0))) is np.ndarray


def test_tensors_in_tensors_out():
    for x, t in ((tg.tensor(2.0), 1.0), (2.0, tg.tensor(1.0))):
        for part in tg.jvp(lambda x: x * x, (x,), (t,)):
            assert isinstance(part, tg.Tensor)
    assert isinstance(tg.grad(lambda x: x * x)(tg.tensor(3.0)), tg.Tensor)


def test_integers_are_computed_in_float64():
    value, tangent = tg.jvp(lambda x: x / 2, (np.array([1, 2]),), (tg.tensor([1, 0]).data,))
    assert value.dtype == tangent.dtype == np.float64
    assert tg.jvp(tg.sum, (tg.tensor([1, 2]),), ([1, 0],))[1].item() == 1.0


def test_a_tangent_takes_its_primals_dtype():
    _, tangent = tg.jvp(lambda x: x * 2.0, (np.float32([1, 2]),), ([1.0, 0.0],))
    assert tangent.dtype == np.float32


@pytest.mark.parametrize(
    ("constant", "shape"),
    [(3, ()), (2.5, ()), (np.ones(2), (2,)), (tg.tensor([[1.0]]), (1, 1)), (True, ())],
)
def test_a_constant_result_has_a_zero_tangent(constant, shape):
    value, tangent = tg.jvp(lambda x: constant, (2.0,), (1.0,))
    assert np.shape(value) == np.shape(tangent) == shape
    assert np.all(np.asarray(tangent) == 0.0)
    if shape == ():
        assert tg.grad(lambda x: constant)(2.0) == 0.0


def test_results_are_the_callers_own():
    x = np.array([1.0, 2.0])
    value, _ = tg.jvp(lambda x: x, (x,), (x,))
    value[0] = 9.0
    assert x.tolist() == [1.0, 2.0]
    c = tg.tensor([1.0, 2.0])
    tg.jvp(lambda x: c, (x,), (x,))[0][0] = 9.0
    assert c.data.tolist() == [1.0, 2.0]


def test_a_tuple_of_results():
    values, tangents = tg.jvp(lambda x, y: (x * y, [2.0] + x, 7.0), (2.0, 3.0), (1.0, 0.0))
    assert (values[0], tangents[0]) == (6.0, 3.0)
    assert (values[1].tolist(), tangents[1].tolist()) == ([4.0], [1.0])
    assert (values[2], tangents[2]) == (7.0, 0.0)


def test_grad_by_another_argument_and_with_keywords():
    def f(x, y, *, scale=1.0):
        """Doc."""
        return scale * x * y**2

    by_y = tg.grad(f, argnum=1)
    assert by_y(2.0, 3.0) == 12.0 and by_y(2.0, 3.0, scale=10.0) == 120.0
    assert by_y.__name__ == "f" and "derivative of f" in by_y.__doc__
    assert tg.grad(f)(np.array([1.0, 2.0])[1], 3.0) == 9.0


def test_grad_of_an_array_argument():
    got = tg.grad(lambda x: tg.sum(tg.sin(x) * X))(X)
    np.testing.assert_allclose(got, np.cos(X) * X)
    assert tg.grad(tg.sum)(np.ones((0, 2), np.float32)).shape == (0, 2)
    leaf = tg.param(Y)
    tg.sum(tg.grad(lambda x: tg.sum(x**3))(leaf)).backward()
    np.testing.assert_allclose(leaf.grad, 6 * Y)


# -- errors ------------------------------------------------------------------------------------


@in_one(
    ("call", "kind", "words"),
    [
        (lambda: tg.jvp(3, (1.0,), (1.0,)), TypeError, ["jvp", "int 3", "a function"]),
        (lambda: tg.jvp(tg.sin, 1.0, 1.0), TypeError, ["float 1.0", "tuple", "(x,)"]),
        (lambda: tg.jvp(tg.sin, (1.0,), (1.0, 2.0)), ValueError, ["1 primals and 2 tangents"]),
        (
            lambda: tg.jvp(tg.sin, (np.ones(3),), (np.ones(2),)),
            ValueError,
            ["tangents[0]", "(2,)", "(3,)"],
        ),
        (lambda: tg.jvp(tg.sin, ("a",), (1.0,)), TypeError, ["primals[0]", "'a'"]),
        (lambda: tg.jvp(tg.sin, (1.0,), (None,)), TypeError, ["tangents[0]", "None"]),
        (lambda: tg.jvp(tg.sin, (tg.Value(1.0),), (1.0,)), TypeError, ["Value", "backward()"]),
        (lambda: tg.jvp(lambda x: None, (1.0,), (1.0,)), TypeError, ["result", "None"]),
        (lambda: tg.jvp(lambda x: "no", (1.0,), (1.0,)), TypeError, ["result", "'no'"]),
        (lambda: tg.jvp(lambda x: x, (None,), (None,)), TypeError, ["primals[0]", "None"]),
        (lambda: tg.jvp(lambda x: tg.Value(1.0), (1.0,), (1.0,)), TypeError, ["a Value"]),
        (lambda: tg.jvp(lambda x: x * tg.Value(1.0), (1.0,), (1.0,)), TypeError, ["Value"]),
        (lambda: tg.jvp(lambda x: tg.Value(1.0) * x, (1.0,), (1.0,)), TypeError, ["Value"]),
        (lambda: tg.jvp(lambda x: x * "a", (1.0,), (1.0,)), TypeError, ["mul", "'a'"]),
        (lambda: tg.jvp(lambda x: x + np.ones(2), (X,), (X,)), ValueError, ["(2, 3)", "(2,)"]),
        (lambda: tg.jvp(lambda x: x @ x, (X,), (X,)), ValueError, ["matmul", "(2, 3)"]),
        (lambda: tg.Dual(1.0, [1.0]), ValueError, ["tangent of shape (1,)", "()"]),
        (lambda: tg.Dual(tg.Value(1.0), 1.0), TypeError, ["Value"]),
        (lambda: tg.Dual(tg.Dual(1.0, 1.0), 1.0), ValueError, ["level 0", "tg.jvp"]),
        (lambda: tg.grad("f"), TypeError, ["grad", "'f'", "a function"]),
        (lambda: tg.grad(tg.sin, 1.5), TypeError, ["argnum", "1.5"]),
        (lambda: tg.grad(tg.sin, -2)(1.0), ValueError, ["argnum -2", "1 positional"]),
        (lambda: tg.grad(tg.sin, 1)(1.0), ValueError, ["argnum 1", "1 positional"]),
        (lambda: tg.grad(tg.sin)(X), ValueError, ["(2, 3)", "tg.jvp"]),
        (lambda: tg.grad(lambda x: x.reshape(1))(1.0), ValueError, ["(1,)"]),
        (lambda: tg.grad(lambda x: (x, x))(1.0), TypeError, ["not a tuple"]),
        (lambda: tg.grad(lambda x: None)(1.0), TypeError, ["None"]),
        (lambda: tg.grad(tg.sin)(tg.Value(1.0)), TypeError, ["Value", "backward()"]),
        (lambda: tg.grad(lambda x: np.i0(x))(1.0), TypeError, ["numpy.i0", "tg.defop"]),
    ],
)
def test_errors(call, kind, words):
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    for word in words:
        assert word in message
    if "; expected" in message:
        assert __file__ in message  # the user's line


def test_a_missing_rule_names_the_operation():
    op = Op("ruleless", lambda x: x**3)
    try:
        with pytest.raises(NotImplementedError, match="ruleless: .*rule"):
            tg.jvp(lambda x: apply(op, (x,)), (1.0,), (1.0,))
    finally:
        del OPS["ruleless"]


def test_a_dual_of_a_finished_level_is_refused():
    kept = []
    tg.jvp(lambda x: kept.append(x) or x, (1.0,), (1.0,))
    inner = []
    with pytest.raises(ValueError, match="whose derivative has ended"):
        tg.jvp(
            lambda x: tg.jvp(lambda y: inner.append(y) or y, (1.0,), (1.0,)) and inner[0],
            (1.0,),
            (1.0,),
        )
    assert tg.jvp(lambda x: x * 2.0, (kept[0],), (1.0,))[1].item() == 2.0
