"""`tg.vmap` against the loop that it replaces, for every operation, nesting and engine."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tapegraph as tg
import tapegraph.autograd.numpy as anp
from tests.cases import CASES, COMPLEX_CASES, WITHOUT_GRADIENT
from tests.quick import a_few_each, check_each, each_operation

COUNT = 3
# Where sums are taken in another order than in the loop: products of matrices and vectors by
# BLAS, and rules written with other operations where what is shared in the loop is batched.
OTHER_SUMS = {
    *("matmul", "batch_matmul", "einsum", "convolve", "conv2d", "lstsq", "layer_norm"),
    *("softmax_crossentropy", "mse_loss", "norm"),
}


def plain(x):
    return np.asarray(getattr(x, "_array", x))


def loop(run, rows):
    return np.stack([plain(run(*row)) for row in rows])


def examples(samples):
    """Arguments and axes: every input batched, and then each alone."""
    count = len(samples)
    masks = [(True,) * count, *(tuple(i == j for i in range(count)) for j in range(count))]
    for mask in dict.fromkeys(masks):
        rows = [
            [s[i if m else 0] for s, m in zip(samples, mask, strict=True)] for i in range(COUNT)
        ]
        args = [np.stack(s) if m else s[0] for s, m in zip(samples, mask, strict=True)]
        yield rows, args, tuple(0 if m else None for m in mask)


def equal(op, got, want):
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    if op in OTHER_SUMS:
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)
    else:
        np.testing.assert_array_equal(got, want)


def drawn(case):
    rng = np.random.default_rng(0)
    return [[np.asarray(sample(rng)) for _ in range(COUNT)] for sample in case.inputs]


def values_are_the_loops(case):
    run = case.function()
    with np.errstate(all="ignore"):
        for rows, args, axes in examples(drawn(case)):
            got = tg.vmap(run, axes)(*map(tg.param, args))
            equal(case.op, plain(got), loop(run, [map(tg.param, row) for row in rows]))


BATCHED = [*CASES, *WITHOUT_GRADIENT]


@each_operation(BATCHED)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.one_in(2)
def test_values_and_dtypes_are_the_loops(op):
    check_each(op, BATCHED, values_are_the_loops)


SMOOTH = [case for case in BATCHED if case in CASES]
# As above, and where a slope takes an array of one element for a number in the loop.
OTHER_SLOPES = OTHER_SUMS | {
    *("pow", "arctan2", "hypot", "logaddexp", "betaln", "beta", "div_strong"),
    "xlog1py",
}
OTHER_SLOPES |= {"div", "div_strong"}


def gradients_are_the_loops(case):
    run = case.function()
    with np.errstate(all="ignore"):
        for rows, args, axes in examples(drawn(case)):
            for i in range(len(args)):
                gradient = tg.grad(lambda *xs: 1.5 * tg.sum(run(*xs)), i)
                got, want = tg.vmap(gradient, axes)(*args), loop(gradient, rows)
                equal("matmul" if case.op in OTHER_SLOPES else case.op, got, want)


@each_operation(SMOOTH)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.one_in(6)
def test_gradients_of_each_example_are_the_loops(op, thorough):
    cases = [case for case in SMOOTH if case.op == op and run_is_real(case)]
    check_each(op, cases if thorough else a_few_each(cases), gradients_are_the_loops)


def run_is_real(case):
    return plain(case.run(*case.arrays(), *case.fixed())).dtype.kind == "f"


@each_operation(COMPLEX_CASES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.one_in(2)
def test_complex_numbers_are_the_loops(op):
    def check(case):
        samples = [[np.asarray(x * (1.0 + 0.1 * i)) for i in range(COUNT)] for x in case.inputs]
        for rows, args, axes in examples(samples):
            got = tg.vmap(case.run, axes)(*map(tg.param, args))
            equal(case.op, plain(got), loop(case.run, [map(tg.param, row) for row in rows]))

    check_each(op, COMPLEX_CASES, check)


# ------------------------------------------------------------------ nesting

X = np.random.default_rng(1).normal(size=(4, 3))
W = np.random.default_rng(2).normal(size=3)


def energy(w, x):
    return tg.sum(np.tanh(w * x) ** 2 * x[::-1])


def curve(x):
    return np.tanh(x) * x[::-1] + np.sum(x) ** 2


NESTINGS = {
    "grad": (tg.grad(energy), (None, 0), (W, X)),
    "grad of grad": (
        lambda w, x: tg.grad(lambda w: tg.sum(tg.grad(energy)(w, x) ** 2))(w),
        (None, 0),
        (W, X),
    ),
    "both arguments": (tg.grad(energy, (0, 1)), (None, 0), (W, X)),
    "value_and_grad": (tg.value_and_grad(energy), (None, 0), (W, X)),
    "vjp": (lambda x, v: tg.vjp(curve, x)[1](v), 0, (X, X[::-1])),
    "vjp of one cotangent": (lambda x, v: tg.vjp(curve, x)[1](v), (0, None), (X, W)),
    "vjp at one point": (lambda x, v: tg.vjp(curve, x)[1](v), (None, 0), (W, X)),
    "jvp": (lambda x, v: tg.jvp(curve, (x,), (v,)), 0, (X, X[::-1])),
    "jvp at one point": (lambda x, v: tg.jvp(curve, (x,), (v,)), (None, 0), (W, X)),
    "jacobian": (tg.jacobian(curve), 0, (X,)),
    "jacobian forwards": (tg.jacobian(curve, mode="forward"), 0, (X,)),
    "hessian": (tg.hessian(energy), (None, 0), (W, X)),
    "hvp": (lambda w, x: tg.hvp(lambda w: energy(w, x), (w,), (x,)), (None, 0), (W, X)),
    "checkpoint": (tg.grad(lambda w, x: energy(tg.checkpoint(np.tanh)(w), x)), (None, 0), (W, X)),
    "elementwise_grad": (tg.elementwise_grad(curve), 0, (X,)),
    "itself": (lambda x: tg.vmap(lambda a, b: a * np.sum(x) + b, (0, None))(x, W), 0, (X,)),
    "itself twice": (
        lambda x: tg.vmap(lambda a: tg.vmap(lambda b: np.sin(a * b) * x)(x))(x),
        0,
        (X,),
    ),
    "grad in itself": (
        lambda x: tg.vmap(tg.grad(lambda a, b: np.sin(a * b)), (0, None))(x, x[0]),
        0,
        (X,),
    ),
    "a choice": (lambda x: np.where(x > 0.0, np.log(np.abs(x)), 0.1 * x), 0, (X,)),
    "places": (lambda x: np.sort(x)[np.argmax(x)] + x[np.argsort(x)], 0, (X,)),
    "a tangent rule from a gradient rule": (
        lambda x, v: tg.jvp(lambda x: np.linalg.det(np.outer(x, x) + np.eye(3)), (x,), (v,)),
        0,
        (X, X[::-1]),
    ),
    "tangents of one point through such a rule": (
        tg.jacobian(lambda x: np.linalg.inv(np.outer(x, x) + np.eye(3)), mode="forward"),
        0,
        (X,),
    ),
    "many cotangents at a point that moves": (
        lambda x: tg.jvp(
            lambda x: tg.vmap(tg.vjp(np.tanh, x)[1])(np.eye(3)), (x,), (np.sin(3.0 * x),)
        ),
        0,
        (X,),
    ),
    "several results": (lambda x: np.linalg.slogdet(np.outer(x, x) + np.diag(x)), 0, (X,)),
    "gradients of several results": (
        tg.grad(lambda x: np.linalg.slogdet(np.outer(x, x + 1.0) + np.eye(3))[1] ** 3),
        0,
        (X,),
    ),
    "least squares": (
        lambda x: np.linalg.lstsq(np.stack([x, x**2], 1), x**3, rcond=None)[:2],
        0,
        (X,),
    ),
    "numbers": (lambda x: np.linalg.norm(x) * np.median(x) + np.cumsum(x), 0, (X,)),
}


def by_loop(f, axes, args):
    axes = axes if isinstance(axes, tuple) else (axes,) * len(args)
    rows = [
        [a if axis is None else a[i] for a, axis in zip(args, axes, strict=True)] for i in range(4)
    ]
    results = [f(*row) for row in rows]
    if isinstance(results[0], tuple):
        return tuple(np.stack(parts) for parts in zip(*results, strict=True))
    return np.stack(results)


def check_equal(got, want):
    got, want = (x if isinstance(x, tuple) else (x,) for x in (got, want))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(plain(a), b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", NESTINGS)
def test_nestings_are_the_loops(name):
    f, axes, args = NESTINGS[name]
    got = tg.vmap(f, axes)(*args)
    check_equal(got, by_loop(f, axes, args))
    assert all(type(x) is np.ndarray for x in (got if isinstance(got, tuple) else (got,)))


@pytest.mark.parametrize("name", NESTINGS)
@pytest.mark.one_in(8, of="tensorflow")
def test_compiled_nestings_are_the_loops(name, backend):
    f, axes, args = NESTINGS[name]
    step = tg.compile(tg.vmap(f, axes))
    for given in (args, args, args, [0.5 * x for x in args]):
        with tg.use_backend("native"):
            want = by_loop(f, axes, given)
        check_equal(step(*given), want)


@pytest.mark.parametrize("name", ["grad", "jvp", "a choice", "itself twice", "jacobian"])
def test_gradients_of_nestings_are_the_loops(name):
    f, axes, args = NESTINGS[name]

    def total(run):
        def of(*args):
            parts = run(*args)
            return sum(tg.sum(p * p) for p in (parts if isinstance(parts, tuple) else (parts,)))

        return of

    def looped(*args):
        rows = [
            [a if x is None else a[i] for a, x in zip(args, as_tuple, strict=True)]
            for i in range(4)
        ]
        parts = [f(*row) for row in rows]
        return (
            [np.stack(p) for p in zip(*parts, strict=True)]
            if isinstance(parts[0], tuple)
            else np.stack(parts)
        )

    as_tuple = axes if isinstance(axes, tuple) else (axes,) * len(args)
    got = tg.grad(total(tg.vmap(f, axes)))(*args)
    want = tg.grad(
        lambda *a: (
            sum(tg.sum(p * p) for p in looped(*a))
            if isinstance(looped(*a), list)
            else tg.sum(looped(*a) ** 2)
        )
    )(*args)
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradients_of_examples_have_the_same_bits_in_every_call(dtype):
    draw = np.random.default_rng(0)
    w, x = draw.normal(size=(34, 25)).astype(dtype), draw.normal(size=(11, 34)).astype(dtype)
    given = {"shared": (w, x), "a tensor": (tg.tensor(w), x), "of rows": (w.T.copy(), x)}
    losses = [lambda w, x: tg.sum(tg.tanh(x @ w) ** 2), lambda w, x: tg.sum(tg.tanh(w @ x) ** 2)]
    with tg.use_backend("native"):
        for name, args in given.items():
            slope = tg.vmap(tg.grad(losses[name == "of rows"]), in_axes=(None, 0))
            step, eager = tg.compile(slope), slope(*args)
            for _ in range(4):
                np.testing.assert_array_equal(step(*args), eager)


def test_a_compiled_step_feeds_floats_to_examples(backend):
    step = tg.compile(tg.vmap(lambda x, k: x * k + np.sqrt(k), in_axes=(0, None)))
    for k in (1.0, 2.0, 3.0, 4.0, 5.5):
        check_equal(step(X, k), X * k + np.sqrt(k))


def test_classes_of_examples_are_places_in_a_compiled_step(backend):
    scores, classes = np.stack([X, 2.0 * X]), np.array([[0, 1, 2, 0], [2, 2, 1, 0]])
    step = tg.compile(tg.vmap(tg.softmax_crossentropy))
    for given in (classes, classes, 2 - classes):
        want = [tg.softmax_crossentropy(*row).item() for row in zip(scores, given, strict=True)]
        np.testing.assert_allclose(plain(step(scores, given)), want, rtol=1e-12)


def test_a_compiled_step_inside_has_no_examples_of_its_own():
    slope = tg.compile(tg.grad(lambda w: np.sum(w**3)))
    for _ in range(4):
        got = tg.vmap(lambda x: x + slope(W))(X)
        np.testing.assert_allclose(got, X + 3.0 * W**2)


def test_gradients_flow_to_what_the_function_closes_over(backend):
    w = tg.param(W)
    loss = tg.vmap(lambda x: energy(w, x))(X).sum()
    loss.backward()
    want = sum(tg.grad(energy)(W, x) for x in X)
    np.testing.assert_allclose(w.grad, want, rtol=1e-9)
    assert tg.gradients(tg.vmap(lambda x: energy(w, x))(X), [w])[0].shape == (3,)


# ------------------------------------------------------------------ axes and structures


@pytest.mark.parametrize(("axis", "out"), [*itertools.product([0, 1, -1, -2], [0, 1, -1])])
def test_axes_count_from_either_end(axis, out):
    x = np.arange(12.0).reshape(3, 4)
    got = tg.vmap(lambda x: 2.0 * x, axis, out)(x)
    np.testing.assert_array_equal(got, np.moveaxis(2.0 * np.moveaxis(x, axis, 0), 0, out))


def test_axes_are_a_tree_of_the_arguments():
    model, x = {"w": X, "b": [W, np.ones(4)]}, np.ones(3)
    f = lambda p, x, *, scale: {"y": p["w"] @ x + p["b"][1] * scale, "same": p["b"][0]}  # noqa: E731
    axes = ({"w": 0, "b": [None, 0]}, None)
    got = tg.vmap(f, axes, {"y": 0, "same": None})(model, x, scale=np.arange(4.0))
    np.testing.assert_allclose(got["y"], X @ x + np.arange(4.0))
    np.testing.assert_array_equal(got["same"], W)


def test_what_is_the_same_for_all_repeats():
    np.testing.assert_array_equal(tg.vmap(lambda x: W)(X), np.stack([W] * 4))
    np.testing.assert_array_equal(tg.vmap(lambda x: 2.0)(X), np.full(4, 2.0))


@pytest.mark.parametrize("size", [1, 3, 4, 10])
def test_chunks_give_the_same(size):
    got = tg.vmap(tg.value_and_grad(energy), (None, 0), chunk_size=size)(W, X)
    check_equal(got, by_loop(tg.value_and_grad(energy), (None, 0), (W, X)))


def test_no_example_at_all():
    assert tg.vmap(lambda x: x * 2.0)(np.ones((0, 3))).shape == (0, 3)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: tg.vmap(energy)(W, X), r"3 examples in args\[0\] and 4 in args\[1\].*Write None"),
        (lambda: tg.vmap(energy, (None, 2))(W, X), r"axis 2 for args\[1\] of shape \(4, 3\)"),
        (
            lambda: tg.vmap(energy, (0,))(W, X),
            r"in_axes=\(\*,\) for args of structure \(\*, \*\).*tuple",
        ),
        (
            lambda: tg.vmap(np.sin, ({"a": 0},))({"b": X}),
            r"for args\[0\] of .*Write in_axes\[0\]=0",
        ),
        (lambda: tg.vmap(energy, None)(W, X), "no argument with examples"),
        (lambda: tg.vmap(np.sin, out_axes=None)(X), "None for the result.*Use out_axes=0"),
        (lambda: tg.vmap(np.sin, out_axes=3)(X), "axis 3 for the result"),
        (lambda: tg.vmap(np.sin, randomness="some")(X), "randomness='some'"),
        (lambda: tg.vmap(np.sin, chunk_size=0)(X), "chunk_size=0"),
    ],
)
def test_what_does_not_fit_is_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()


@pytest.mark.parametrize(
    ("f", "instead"),
    [
        (lambda x: x if x[0] > 0 else -x, r"Write tg\.where\(condition, a, b\)"),
        (lambda x: float(x[0]), r"write np\.stack\(\[x, y\]\) or np\.where"),
        (lambda x: np.array([x, 2.0 * x]), r"In place of np\.array\(\[x, y\]\)"),
        (lambda x: np.digitize(x, W), r"Write np\.searchsorted\(bins, x, side=\"right\"\)"),
        (lambda x: np.asarray(x), r"has no plain number.*or return the tensor"),
        (lambda x: x[0].item(), r"or return the tensor"),
        (lambda x: range(x[0]), r"or return the tensor"),
        (lambda x: f"{x[0]:.3f}", r"or return the tensor"),
        (lambda x: x.__setitem__(0, 1.0), r"Use np\.where or np\.concatenate"),
    ],
)
def test_a_number_of_one_example_does_not_leave(f, instead):
    with pytest.raises(TypeError, match=instead):
        tg.vmap(f)(X)


def test_the_rank_is_a_number_where_all_have_the_same():
    a, b = np.random.default_rng(3).normal(size=(4, 3, 2)), np.ones((4, 3))
    got = tg.vmap(lambda a, b: np.linalg.lstsq(a, b))(a, b)
    for part, rows in zip(got, zip(*map(np.linalg.lstsq, a, b), strict=True), strict=True):
        np.testing.assert_allclose(part, rows, rtol=1e-9)
    got = tg.vmap(lambda a: np.linalg.lstsq(a, W)[0] * np.linalg.lstsq(a, W)[2])(a)
    np.testing.assert_allclose(got, [2 * np.linalg.lstsq(x, W)[0] for x in a], rtol=1e-9)


def test_ranks_that_differ_are_numbers_of_each_example():
    a = np.stack([np.ones((3, 2)), X[:3, :2]])
    x, residuals, rank, s = tg.vmap(lambda a: np.linalg.lstsq(a, W))(a)
    np.testing.assert_array_equal(rank, [1, 2])
    np.testing.assert_allclose(x, [np.linalg.lstsq(m, W)[0] for m in a], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(s, [np.linalg.svd(m)[1] for m in a], rtol=1e-9, atol=1e-12)
    assert residuals.shape == (2, 0)  # NumPy has none for a matrix of a lower rank


def test_a_captured_rank_is_a_tensor():
    low = np.outer(X[0], [1.0, 2.0])
    step = tg.compile(lambda a: np.linalg.lstsq(a, X[1], rcond=None))
    with tg.use_backend("native"):
        for a in (low, low, low, low + np.eye(3, 2)):
            got, want = step(a), np.linalg.lstsq(a, X[1], rcond=None)
            np.testing.assert_allclose(got[0].numpy(), want[0], rtol=1e-9)
            residuals = want[1] if want[2] == 2 else [np.nan]
            np.testing.assert_allclose(got[1].numpy(), residuals, rtol=1e-9)
            assert int(got[2].numpy()) == want[2]


COMPILED = {
    "a step": lambda f: tg.compile(f),
    "its gradient": lambda f: tg.grad(tg.compile(lambda x: tg.sum(f(x)))),
    "a compiled gradient": lambda f: tg.compile(tg.grad(lambda x: tg.sum(f(x)))),
    "a step that closes over it": lambda f: lambda x: tg.compile(lambda y: f(x) * y)(np.ones(3)),
    "its scan": lambda f: lambda x: tg.compile(lambda y: f(x) * y).scan(np.ones((2, 3))),
}


@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_step_is_a_part_of_the_batch(name):
    run = COMPILED[name](curve)
    with tg.compile_disabled():
        want = np.stack([plain(run(x)) for x in X])
    for _ in range(3):
        np.testing.assert_allclose(tg.vmap(run)(X), want, rtol=1e-12)


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_a_jacobian_by_what_is_unread(mode):
    rows = tg.jacobian(lambda w, x: np.sin(x), mode=mode)
    np.testing.assert_array_equal(tg.vmap(rows, (None, 0))(2.0, X), np.zeros((4, 3)))
    slope = lambda w, x: tg.hvp(lambda w: np.sum(2.0 * w), (w,), (np.sin(w),))  # noqa: E731
    np.testing.assert_array_equal(tg.vmap(slope, (None, 0))(W, X), np.zeros((4, 3)))


@pytest.mark.parametrize("outer", [lambda f: f, tg.compile], ids=["eager", "compiled"])
def test_derivatives_by_examples_that_nobody_reads(outer):
    shared = np.arange(4.0)
    pulled = lambda f, g: lambda x: tg.vjp(f, x)[1](g)  # noqa: E731
    constant = lambda x: 2.0 * shared  # noqa: E731
    for f, shape in (
        (tg.jacrev(constant), (4, 4, 3)),
        (tg.jacfwd(constant), (4, 4, 3)),
        (tg.jacobian(lambda x: (2.0 * shared, x)), (4, 4, 3)),
        (pulled(constant, shared), (4, 3)),
        (pulled(lambda x: {}, {}), (4, 3)),
        (lambda y: tg.vmap(tg.jacrev(lambda x: 0.0 * y[0]))(X), (4, 4, 3)),
    ):
        run = outer(tg.vmap(f))
        for _ in range(3):
            found = run(X)
        parts = found if isinstance(found, tuple) else (found,)
        np.testing.assert_array_equal(parts[0], np.zeros(shape))


@pytest.mark.parametrize("levels", [1, 2])
def test_a_pullback_of_many_cotangents(levels):
    value, pullback = tg.vjp(curve, W)
    basis = np.eye(3) if levels == 1 else np.stack([np.eye(3), 2.0 * np.eye(3)])
    for _ in range(levels):
        pullback = tg.vmap(pullback)
    rows = tg.jacobian(curve)(W)
    np.testing.assert_allclose(pullback(basis), basis @ rows, rtol=1e-12)


def test_zeros_absorb_infinities_in_many_tangents():
    A = np.diag([1.0, 2.0])

    def f(x):
        return A @ np.where(x > 0.0, np.sqrt(x), 0.0)

    x = np.array([[0.0, 4.0], [1.0, -1.0]])
    with np.errstate(all="ignore"):
        for derivative in (tg.jacobian(f, mode="forward"), tg.jacobian(f, mode="reverse")):
            want = np.stack([np.diag([0.0, 0.5]), np.diag([0.5, 0.0])])
            np.testing.assert_array_equal(tg.vmap(derivative)(x), want)


def test_backward_inside_is_refused():
    with pytest.raises(RuntimeError, match=r"tg\.grad\(f\) inside vmap"):
        tg.vmap(lambda x: tg.sum(x).backward())(X)


def test_a_value_of_a_level_that_has_ended_is_refused():
    kept = []
    tg.vmap(lambda x: kept.append(x) or x)(X)
    with pytest.raises(ValueError, match="has ended"):
        tg.vmap(lambda x: kept[0])(X)


# ------------------------------------------------------------------ random numbers


def test_a_draw_is_refused_unless_said():
    with pytest.raises(RuntimeError, match='randomness="different"'):
        tg.vmap(lambda x: x + tg.random.normal())(X)


def test_different_numbers_are_those_of_the_loop():
    f = lambda x: x * tg.random.normal(size=3)  # noqa: E731
    tg.random.seed(0)
    got = tg.vmap(f, randomness="different")(X)
    tg.random.seed(0)
    np.testing.assert_array_equal(got, np.stack([f(x) for x in X]))


def test_the_same_numbers_are_drawn_once():
    tg.random.seed(0)
    got = tg.vmap(lambda x: tg.random.normal(size=3), randomness="same")(X)
    tg.random.seed(0)
    np.testing.assert_array_equal(got, np.stack([tg.random.normal(size=3)] * 4))


def test_masks_of_dropout_differ():
    kept = tg.vmap(lambda x: tg.dropout(x, 0.5), randomness="different")(np.ones((8, 50)))
    assert len({tuple(row) for row in kept}) == 8


def test_nested_draws_are_those_of_nested_loops():
    f = lambda a, b: a * b * tg.random.normal()  # noqa: E731
    run = tg.vmap(tg.vmap(f, (None, 0), randomness="different"), (0, None), randomness="different")
    tg.random.seed(0)
    got = run(W, X[:, 0])
    tg.random.seed(0)
    np.testing.assert_allclose(got, [[f(a, b) for b in X[:, 0]] for a in W])


def test_a_compiled_step_draws_anew():
    step = tg.compile(tg.vmap(lambda x: x * tg.random.normal(size=3), randomness="different"))
    tg.random.seed(0)
    got = [np.asarray(step(X).data if hasattr(step(X), "data") else step(X)) for _ in range(1)]
    assert got[0].shape == (4, 3)


# ------------------------------------------------------------------ operations of a user's own


def test_an_operation_without_a_rule_runs_one_by_one_and_says_so():
    op = tg.defop(np.cosh, vjp=lambda g, y, x: g * np.sinh(x), name="cosh_by_hand")
    with pytest.warns(tg.SlowBatchingWarning, match="vmap: cosh_by_hand"):
        got = tg.vmap(lambda x: op(x))(X)
    np.testing.assert_array_equal(got, np.cosh(X))


@pytest.mark.parametrize(
    "batch", ["elementwise", lambda batched, x: 0.5 * (np.exp(x) + np.exp(-x))]
)
def test_an_operation_with_a_rule_runs_by_it(batch):
    op = tg.defop(np.cosh, vjp=lambda g, y, x: g * np.sinh(x), batch=batch, name="cosh_batched")
    np.testing.assert_allclose(tg.vmap(tg.grad(lambda x: tg.sum(op(x))))(X), np.sinh(X))


@pytest.mark.parametrize("f", [tg.prod, np.linalg.norm, lambda x: tg.mse_loss(x, np.ones(4))])
def test_tangents_that_are_transposed_gradients(f):
    rng = np.random.default_rng(0)
    xs, ts = rng.normal(size=(3, 2, 4)), rng.normal(size=(3, 2, 4))

    def along(x, t):
        return tg.jvp(f, (x,), (t,))[1]

    want = [[along(x, t) for x, t in zip(*rows, strict=True)] for rows in zip(xs, ts, strict=True)]
    np.testing.assert_allclose(tg.vmap(tg.vmap(along))(xs, ts), want, rtol=1e-12)
    of_all = tg.jvp(tg.vmap(tg.vmap(f)), (xs,), (ts,))[1]
    np.testing.assert_allclose(of_all, want, rtol=1e-12)
    by_one = tg.vmap(lambda t: along(xs[0, 0], t))(ts[0])
    np.testing.assert_allclose(by_one, [along(xs[0, 0], t) for t in ts[0]], rtol=1e-12)


@pytest.mark.one_in(2, of="tensorflow")
@pytest.mark.parametrize("engine", ["native", "tensorflow"])
@pytest.mark.parametrize("axes", list(itertools.product((0, None), repeat=3))[:-1], ids=str)
def test_numbers_are_added_at_the_places_of_each_example(axes, engine):
    if engine == "tensorflow":
        pytest.importorskip("tensorflow")
    rng = np.random.default_rng(5)
    target, values = rng.normal(size=(COUNT, 5)), rng.normal(size=(COUNT, 4))
    places = rng.integers(-5, 5, size=(COUNT, 4))
    args = [
        x if axis == 0 else x[0] for x, axis in zip((target, places, values), axes, strict=True)
    ]
    rows = [[x[i] if a == 0 else x for x, a in zip(args, axes, strict=True)] for i in range(COUNT)]
    wanted = [target.copy() for target, _, _ in rows]
    for out, (_, i, x) in zip(wanted, rows, strict=True):
        np.add.at(out, i, x)
    with tg.use_backend(engine):
        many = tg.vmap(tg.add_at, axes)
        np.testing.assert_allclose(many(*args), wanted, rtol=1e-12, atol=1e-15)
        compiled = tg.compile(many, verify_every=None)
        for _ in range(4):
            found = compiled(*args)
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-15)

        def cubes(*args):
            return tg.sum(tg.add_at(*args) ** 3)

        for wrt in (0, 2):
            each = tg.vmap(tg.grad(cubes, wrt), axes)(*args)
            by_row = 3 * np.array(wanted) ** 2
            if wrt == 2:
                by_row = np.array([row[i] for row, (_, i, _) in zip(by_row, rows, strict=True)])
            np.testing.assert_allclose(each, by_row, rtol=1e-12)
            of_all = tg.grad(lambda *args: tg.sum(many(*args) ** 3), wrt)(*args)
            summed = by_row if axes[wrt] == 0 else np.sum(by_row, axis=0)
            np.testing.assert_allclose(of_all, summed, rtol=1e-12)


def test_numbers_are_added_at_places_under_two_levels():
    put = tg.vmap(tg.vmap(lambda x, i: tg.add_at(np.zeros(3), i, x), (None, 0)), (0, None))
    found = put(np.array([1.0, 2.0]), np.array([0, 2, -2]))
    np.testing.assert_array_equal(found, np.multiply.outer([1.0, 2.0], np.eye(3)[[0, 2, 1]]))
    with pytest.raises(IndexError, match="received index 3 for axis 0 of length 3"):
        put(np.array([1.0]), np.array([0, 3]))


def test_a_minimum_of_each_example_is_a_root_of_the_gradient():
    pytest.importorskip("scipy")

    def squares(x, a):
        return tg.sum((x - a) ** 2)

    for start, implicit in itertools.product((np.zeros(2), None), (False, True)):

        def least(a, start=start, implicit=implicit):
            x0 = a if start is None else start
            return tg.optim.minimize(squares, x0, args=(a,), implicit=implicit).x

        with pytest.raises(tg.ConcretizationError, match=r"^minimize: .*tg\.optim\.root"):
            tg.vmap(least)(X[:, :2])
    found = tg.vmap(lambda a: tg.optim.root(tg.grad(squares), np.zeros(2), a))(X[:, :2])
    np.testing.assert_allclose(found, X[:, :2], rtol=1e-9)


@pytest.mark.parametrize("f", [lambda x: anp.array([x, 2.0 * x]), lambda x: anp.full(2, x)])
def test_the_drop_in_joins_examples(f):
    x = X[:, 0]
    np.testing.assert_array_equal(tg.vmap(f)(x), [np.asarray(f(row)) for row in x])
    slope = tg.vmap(tg.grad(lambda x: tg.sum(f(x) ** 2)))(x)
    np.testing.assert_allclose(slope, [tg.grad(lambda x: tg.sum(f(x) ** 2))(row) for row in x])
