"""`tg.scan` against the loop in Python: numbers, gradients of any order, levels, draws, errors."""

from __future__ import annotations

import functools
import random
import tracemalloc

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.engines import registry
from tapegraph.fallback import inner as fallback_inner
from tapegraph.fallback.plan import records
from tapegraph.loops.body import traced
from tapegraph.loops.scan_entry import SCAN
from tests.loops import in_python
from tests.same_bits import same_bits

rng = np.random.default_rng(7)
W = rng.normal(size=(3, 3))
T = rng.normal(size=(3, 3))
X = rng.normal(size=(5, 3))
C = rng.normal(size=3)


@pytest.fixture(autouse=True)
def native():
    with tg.use_backend("native"):
        yield


# Bodies as one writes them, of four unknowns and parameters.
BODIES = {
    "numbers": lambda y, w: np.stack([y[1], -w[0] * np.sin(y[0]), y[3] * w[1], y[0] * y[2]]),
    "slices": lambda y, w: np.concatenate([y[1:] - y[:-1], w[:1] * y[-1:]]) + w[::-1],
    "sums": lambda y, w: y * np.sum(y * w) - np.mean(w * y) * w + np.dot(y, w),
    "limits": lambda y, w: np.clip(y * w, -0.3, 0.9) + np.maximum(y, w) + tg.relu(y - w),
    "ties": lambda y, w: np.maximum(w, np.maximum(y, y * 1.0)) + np.minimum(y, w),
    "rows": lambda y, w: tg.softmax(y * w) + tg.softplus(y) + np.tile(y[:2] * w[:2], 2),
    "norm": lambda y, w: y / np.linalg.norm(y * w) + np.sqrt(np.abs(w)) ** 1.5,
    "variance": lambda y, w: (y - np.mean(y)) / np.sqrt(np.var(y * w) + 1.0),
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies_in_plain_numpy_run_in_c(name, monkeypatch):
    plans = []
    made = fallback_inner._PlanIteration.__init__
    keep = lambda self, plan, *rest: plans.append(plan) or made(self, plan, *rest)  # noqa: E731
    monkeypatch.setattr(fallback_inner._PlanIteration, "__init__", keep)
    f, y0, w0 = BODIES[name], np.array([0.4, -0.8, 0.3, 1.1]), np.array([0.7, -0.2, 1.3, 0.5])

    def loss(scan, y, w):
        return tg.sum(scan(lambda y, _: (f(y, w), None), y, None, length=7)[0] ** 2)

    found = tg.value_and_grad(lambda y, w: loss(tg.scan, y, w), (0, 1))(y0, w0)
    want = tg.value_and_grad(lambda y, w: loss(in_python.scan, y, w), (0, 1))(y0, w0)
    assert found[0] == want[0]
    for a, b in zip(found[1], want[1], strict=True):
        same_bits(a, b)
    if not records.off():
        assert len(set(map(id, plans))) == 2  # forwards and backwards
        assert all(plan.iterations is not None for plan in plans)


def test_other_places_make_another_plan():
    x, w = np.arange(3.0), np.array([2.0, 5.0])
    found = traced("scan", lambda x, w: x[1:] * w[0], list, [x, w])
    places = [np.array(leaf.numpy()) for leaf in found.consts]  # the start and end of each index
    assert sorted(place.item() for place in places) == [0, 1, 1, 3]
    others = [place + (place == 0) for place in places]  # w[1]
    inner = registry.engine(registry.NATIVE).inner(found.body)
    with inner.forward([*places, x, w]) as run:
        for each, want in ((places, [2.0, 4.0]), (others, [5.0, 10.0]), (places, [2.0, 4.0])):
            np.testing.assert_array_equal(run([*each, x, w])[0], want)
    with inner.forward([*others, x, w]) as run:
        np.testing.assert_array_equal(run([*others, x, w])[0], [5.0, 10.0])


def test_a_body_of_many_places_keeps_few_plans():
    table = np.arange(40.0)
    for place in range(40):
        found = traced("scan", lambda x, place=place: x * x[place], list, [np.ones(40)])
        inner = registry.engine(registry.NATIVE).inner(found.body)
        consts = [leaf.numpy() for leaf in found.consts]
        with inner.forward([*consts, table]) as run:
            np.testing.assert_array_equal(run([*consts, table])[0], table * place)
    plans = [plan for idle in inner._idle.values() for plan in idle]
    assert len(plans) <= fallback_inner.MOST_PLACES + 1


def body(w):
    def f(carry, x):
        h, total = carry
        new = tg.tanh(h @ w + x) * (1.0 + 0.1 * h)
        return (new, total + tg.sum(new * x)), {"h": new, "square": h * h}

    return f


def loss(scan, w, c, xs, **options):
    (h, total), ys = scan(body(w), (c, 0.0), xs, **options)
    return tg.sum(h**3) * total + tg.sum(tg.sin(ys["h"])) + tg.sum(ys["square"] * ys["h"])


def trained(scan, dtype, **options):
    w, c, xs = (tg.param(x.astype(dtype)) for x in (W, C, X))
    (h, total), ys = scan(body(w), (c, np.zeros((), dtype)), xs, **options)
    (tg.sum(h**3) * total + tg.sum(ys["h"] * ys["square"])).backward()
    return [h.data, total.data, ys["h"].data, ys["square"].data, w.grad, c.grad, xs.grad]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("checkpoint", [None, 2, 3, 7, "sqrt"])
def test_bits_are_those_of_the_loop(dtype, reverse, checkpoint):
    ours = trained(tg.scan, dtype, reverse=reverse, checkpoint=checkpoint)
    for got, want in zip(ours, trained(in_python.scan, dtype, reverse=reverse), strict=True):
        same_bits(got, want)


DERIVATIVES = {
    "grad": lambda f: tg.grad(f)(W),
    "jvp": lambda f: tg.jvp(f, (W,), (T,))[1],
    "hessian": lambda f: tg.hessian(f)(W),
    "hvp": lambda f: tg.hvp(f, (W,), (T,)),
    "grad of grad": lambda f: tg.grad(lambda w: tg.sum(tg.grad(f)(w) * T))(W),
    "jvp of jvp": lambda f: tg.jvp(lambda w: tg.jvp(f, (w,), (T,))[1], (W,), (T * T,))[1],
    "third": lambda f: tg.grad(lambda w: tg.sum(tg.hvp(f, (w,), (T,)) * T))(W),
    "vmap": lambda f: tg.vmap(f)(np.stack([W, T])),
    "vmap of grad": lambda f: tg.vmap(tg.grad(f))(np.stack([W, T])),
    "grad of vmap": lambda f: tg.grad(lambda w: tg.sum(tg.vmap(f)(tg.stack([w, T]))))(W),
    "compiled": lambda f: compiled(tg.grad(f)),
    "compiled hvp": lambda f: compiled(lambda w: tg.hvp(f, (w,), (T,))),
    "checkpoint": lambda f: tg.grad(tg.checkpoint(f))(W),
}


def compiled(f):
    step = tg.compile(f, verify_every=None)
    return [step(W) for _ in range(3)][-1]


@pytest.mark.parametrize("name", DERIVATIVES)
@pytest.mark.parametrize("options", [{}, {"reverse": True}, {"checkpoint": 2}], ids=str)
@pytest.mark.one_in(4)
def test_derivatives_are_those_of_the_loop(name, options):
    derivative = DERIVATIVES[name]
    found = derivative(lambda w: loss(tg.scan, w, C, X, **options))
    reverse = options.get("reverse", False)
    wanted = derivative(lambda w: loss(in_python.scan, w, C, X, reverse=reverse))
    np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-11)


def test_a_scan_in_a_scan():
    def nested(scan, w):
        def outer(c, x):
            inner, squares = scan(lambda c, y: (tg.tanh(c @ w + x * y), c * y), c, X[:3])
            return inner, squares

        last, ys = scan(outer, C, X)
        return tg.sum(last) + tg.sum(ys * ys)

    ours, wanted = (tg.grad(lambda w, s=s: nested(s, w))(W) for s in (tg.scan, in_python.scan))
    np.testing.assert_allclose(ours, wanted, rtol=1e-12)
    ours, wanted = (tg.hessian(lambda w, s=s: nested(s, w))(W) for s in (tg.scan, in_python.scan))
    np.testing.assert_allclose(ours, wanted, rtol=1e-10, atol=1e-10)


def test_a_body_differentiates_by_what_a_level_outside_moves():
    cube = lambda u: tg.sum(u**3)  # noqa: E731

    def f(scan, v):
        return scan(lambda c, x: (c + tg.grad(cube)(v) * x[0], tg.jvp(cube, (v,), (v,))[1]), v, X)

    for derivative in (
        lambda s: tg.jvp(lambda v: sum(map(tg.sum, f(s, v))), (C,), (X[0],))[1],
        lambda s: tg.vmap(lambda v: sum(map(tg.sum, f(s, v))))(X),
        lambda s: tg.hessian(lambda v: sum(map(tg.sum, f(s, v))))(C),
    ):
        np.testing.assert_allclose(*(derivative(s) for s in BOTH), rtol=1e-12, atol=1e-12)


def test_levels_outside_are_constants_of_the_body():
    def f(scan, a, b):
        last, _ = scan(lambda c, x: (tg.tanh(c * a + x * b), None), C, X)
        return tg.sum(last * a)

    for derivative in (
        lambda s: tg.jvp(lambda a: f(s, a, 2.0), (C,), (np.ones(3),))[1],
        lambda s: tg.vmap(lambda a: f(s, a, 2.0))(W),
        lambda s: tg.vmap(lambda b: tg.grad(lambda a: f(s, a, b))(C))(np.arange(3.0)),
        lambda s: tg.jvp(lambda a: tg.grad(lambda b: f(s, a, b))(1.5), (C,), (X[1],))[1],
        lambda s: tg.vmap(lambda a: tg.vmap(lambda b: f(s, a, b))(W))(T),
    ):
        np.testing.assert_allclose(derivative(tg.scan), derivative(in_python.scan), rtol=1e-12)


def test_draws_are_those_of_the_loop():
    def run(scan, reverse):
        tg.random.seed(3)
        w = tg.param(W)

        def f(c, x):
            c = tg.dropout(tg.tanh(c @ w), 0.3) + 0.1 * tg.random.normal(size=3)
            return c, c * tg.random.uniform(size=3)

        last, ys = scan(f, C, X, reverse=reverse)
        (tg.sum(last * last) + tg.sum(ys)).backward()
        return last.data, ys.data, w.grad, tg.random.uniform()

    for reverse in (False, True):
        for got, want in zip(run(tg.scan, reverse), run(in_python.scan, reverse), strict=True):
            same_bits(np.asarray(got), np.asarray(want))


def test_a_compiled_step_draws_anew_in_every_round_and_run():
    w = tg.param(W)
    optimizer = tg.SGD([w], 0.1)

    @tg.compile
    def step(x):
        def f(c, row):
            return tg.dropout(tg.tanh(c @ w + row), 0.3) + tg.random.normal(size=3), None

        value = tg.sum(tg.scan(f, C, x)[0] ** 2)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        return value

    def trained():
        w.assign(W)
        tg.random.seed(5)
        return [step(X).item() for _ in range(6)], w.data.copy()

    ours, found = trained()
    with tg.compile_disabled():
        values, wanted = trained()
    assert ours == values
    same_bits(found, wanted)


def test_complex_numbers():
    z = (W + 1j * T) / 3

    def f(scan, z):
        last, ys = scan(lambda c, x: (tg.tanh(c @ z + x), c), C + 0j, X * (1 - 0.5j))
        return tg.sum(tg.abs(last) ** 2) + tg.sum(tg.abs(ys) ** 2)

    ours, wanted = (tg.grad(lambda z, s=s: f(s, z))(z) for s in (tg.scan, in_python.scan))
    same_bits(ours, wanted)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_zero_stays_zero():
    def f(scan, a):
        last, _ = scan(lambda c, x: (tg.where(x > 0, tg.sqrt(c * x), c), None), a, X)
        return tg.sum(last)

    start = np.array([0.0, 1.0, 4.0])
    ours, wanted = (tg.grad(lambda a, s=s: f(s, a))(start) for s in (tg.scan, in_python.scan))
    same_bits(ours, wanted)
    masked = lambda c, x: (tg.where(c > 0, tg.log(c), c * x), None)  # noqa: E731
    found = tg.grad(lambda a: tg.sum(tg.scan(masked, a, X)[0]))(np.array([-1.0, 0.0, 2.0]))
    wanted = tg.grad(lambda a: tg.sum(in_python.scan(masked, a, X)[0]))(np.array([-1.0, 0.0, 2.0]))
    same_bits(found, wanted)


def test_trees_none_and_no_rounds():
    double = lambda c, _: ({"a": c["a"] * 2.0, "n": None}, None)  # noqa: E731
    carry, ys = tg.scan(double, {"a": 1.0, "n": None}, None, 3)
    assert (carry["a"].item(), carry["n"], ys) == (8.0, None, None)
    flip = lambda c, x: ((c[0] + 1, np.logical_not(c[1])), None)  # noqa: E731
    count, flag = tg.scan(flip, (0, False), X)[0]
    assert (count.item(), flag.item(), flag.dtype) == (5, True, bool)
    last, ys = tg.scan(lambda c, x: (c + x, c), 1.0, np.zeros(0))
    assert (last.item(), ys.shape) == (1.0, (0,))
    grads = tg.grad(lambda c: tg.sum(tg.scan(lambda c, x: (c * x, c), c, np.zeros((0, 3)))[0]))(C)
    same_bits(grads, np.ones(3))


def test_python_numbers_take_the_dtype_of_the_carry():
    last = tg.fori_loop(0, 3, lambda i, c: c + np.float32(1.5), 0)
    assert last.item() == 4.5


def test_what_a_body_may_not_do():
    w = tg.param(W)
    with pytest.raises(TypeError, match=r"shape \(3,\) .*init\['a'\].*shape \(\)"):
        tg.scan(lambda c, x: ({"a": c["a"] + x}, None), {"a": 0.0}, X)
    with pytest.raises(TypeError, match="float64.*int64"):
        tg.scan(lambda c, x: (c + x[0], None), np.zeros((), np.int64), X)
    with pytest.raises(TypeError, match="structure"):
        tg.scan(lambda c, x: ((c, c), None), 0.0, X)
    with pytest.raises(TypeError, match="a pair.* write return carry, carry"):
        tg.scan(lambda c, x: c, 0.0, X)
    with pytest.raises(ValueError, match=r"xs without an axis; .* tg\.scan\(f, init, xs\)"):
        tg.scan(lambda c, x: (c, x), X, 0.0)
    with pytest.raises(ValueError, match="3 iterations by xs.*5 by xs"):
        tg.scan(lambda c, x: (c, None), 0.0, (X[:3], X))
    with pytest.raises(ValueError, match="neither"):
        tg.scan(lambda c, x: (c, None), 0.0)
    with pytest.raises(ValueError, match="checkpoint=0"):
        tg.scan(lambda c, x: (c, None), 0.0, X, checkpoint=0)
    with pytest.raises(tg.ConcretizationError, match=r"tg\.cond"):
        tg.scan(lambda c, x: (c if c > 0 else -c, None), 0.0, X)
    with pytest.raises(tg.ConcretizationError):
        tg.scan(lambda c, x: (c + float(x[0]), None), 0.0, X)
    with pytest.raises(RuntimeError, match="carry"):
        tg.scan(lambda c, x: (c, w.assign(W * 2)), 0.0, X)
    with pytest.raises(RuntimeError, match=r"tg\.grad"):
        tg.scan(lambda c, x: (c, tg.sum(w * x).backward()), 0.0, X)
    with pytest.raises(RuntimeError, match=r"step\.scan"):
        optimizer = tg.SGD([w], 0.1)
        w.grad = W
        tg.scan(lambda c, x: (c, optimizer.step()), 0.0, X)
    with pytest.raises(TypeError, match="Value"):
        tg.scan(lambda c, x: (c, tg.Value(2.0) * 3.0), 0.0, X)
    same_bits(w.data, W)


def test_what_was_kept_of_a_body_is_not_read():
    kept = []
    tg.scan(lambda c, x: (c + x, kept.append(c * x)), C, X)
    with pytest.raises(RuntimeError, match="scan of"):
        kept[0].numpy()


def test_an_entry_shows_its_body():
    w = tg.param(W)
    last, _ = tg.scan(lambda c, x: (tg.tanh(c @ w + x), None), C, X)
    assert "body=<6 entries>" in str(tg.tape())
    assert "scan" in str(tg.draw(last))


def test_nothing_is_recorded_under_no_grad():
    w = tg.param(W)
    with tg.no_grad():
        last, _ = tg.scan(lambda c, x: (tg.tanh(c @ w + x), c), C, X)
    assert not last.requires_grad
    assert len(tg.tape()) == 1


def peak(rounds):
    """The peak of memory of three calls of a step, with as many rounds."""
    w = tg.param(W)

    @tg.compile
    def step(x):
        value = tg.sum(tg.scan(lambda c, _: (tg.tanh(c @ w), None), x, None, rounds)[0])
        w.zero_grad()
        value.backward()
        return value

    tracemalloc.start()
    for _ in range(3):
        step(C)
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    lines = step.source().splitlines()
    return found, sum(not line.strip().startswith("del") for line in lines)


def test_what_it_costs_to_make_does_not_depend_on_the_number_of_rounds():
    peak(10)
    (little, short), (much, long) = peak(100), peak(3000)
    assert long == short
    carries = 2900 * C.nbytes  # that the backward needs
    assert much - little < 10 * carries


@pytest.mark.parametrize(
    ("f", "checkpoint", "kept"),
    [
        (lambda c, x, w: tg.tanh(c @ w + x), None, 1),
        (lambda c, x, w: tg.exp(c * w[0]) * tg.sin(x * c), None, 2),  # sin has cos for its slope
        (lambda c, x, w: c @ w + x * 2.0, None, 0),
        (lambda c, x, w: c @ tg.tanh(w), None, 0),  # the same in every round
        (lambda c, x, w: tg.tanh(c @ w + x), 2, 0),
    ],
    ids=["tanh", "product", "linear", "const", "checkpoint"],
)
def test_results_that_the_backward_reads_are_kept(f, checkpoint, kept):
    grads = []
    for scan in BOTH:
        w = tg.param(W)
        last, ys = scan(lambda c, x, w=w: (f(c, x, w),) * 2, C, X, checkpoint=checkpoint)
        (tg.sum(last) + tg.sum(ys * ys)).backward()
        grads.append(w.grad)
        if scan is tg.scan:
            (entry,) = [entry for entry in tg.tape() if entry.op == "scan"]
            assert len(entry.value) == 3 + kept
        tg.tape_reset()
    np.testing.assert_allclose(*grads, rtol=1e-13)  # what is carried and stacked is added up twice


def test_a_float_that_changes_makes_no_new_plan():
    made = []
    with pytest.MonkeyPatch.context() as patch:
        original = fallback_inner.Plan.__init__
        patch.setattr(
            fallback_inner.Plan,
            "__init__",
            lambda self, *a, **k: made.append(1) or original(self, *a, **k),
        )
        for rate in (0.1, 0.2, 0.3, 0.4, 0.5):
            found = []
            for scan in (tg.scan, in_python.scan):
                w = tg.param(W.astype(np.float32))
                body = lambda c, x, w=w, r=rate: (tg.tanh(c @ w * r + x) + r, None)  # noqa: E731
                last, _ = scan(body, C.astype(np.float32), X.astype(np.float32))
                tg.sum(last).backward()
                found.append(w.grad)
            same_bits(*found)
    assert len(made) == 4  # forward and backward, with the float as a constant and fed


def test_bodies_of_other_numbers_are_others():
    start = C.astype(np.float32)
    for number in (2, 3, 2.0, 3.0, True, -0.0, 0.0):
        for f in (lambda c, k: c * k, lambda c, k: abs(c) ** k, lambda c, k: tg.where(c > k, c, k)):
            body = lambda c, x, f=f, k=number: (f(c, k), None)  # noqa: E731
            found, wanted = (scan(body, start, None, 2)[0] for scan in (tg.scan, in_python.scan))
            same_bits(found.data, wanted.data)


def trajectory(scan, w, start):
    """A body that differentiates."""
    energy = lambda q: tg.sum((q @ w) ** 2) * 0.5 + tg.sum(q**4)  # noqa: E731

    def leap(c, _):
        q, p = c
        p = p - 0.1 * tg.grad(energy)(q)
        q = q + 0.2 * p
        return (q, p - 0.1 * tg.grad(energy)(q)), q

    (q, p), qs = scan(leap, (start, np.ones(3)), None, 4)
    return tg.sum(q * p) + tg.sum(qs)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "derivative",
    [
        lambda s: trajectory(s, W, C),
        lambda s: tg.grad(lambda w: trajectory(s, w, C))(W),
        lambda s: tg.hessian(lambda q: trajectory(s, W, q))(C),
        lambda s: tg.vmap(lambda q: trajectory(s, W, q))(X),
        lambda s: tg.vmap(tg.grad(lambda q: trajectory(s, W, q)))(X),
        lambda s: tg.jvp(lambda w: trajectory(s, w, C), (W,), (T,))[1],
    ],
    ids=["value", "grad", "hessian", "vmap", "vmap of grad", "jvp"],
)
def test_a_body_may_differentiate(derivative):
    found, wanted = (np.asarray(getattr(x, "data", x)) for x in map(derivative, BOTH))
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


BOTH = (tg.scan, in_python.scan)


def test_floats_that_change_in_a_compiled_step():
    class Model:
        rate = 0.1

        def run(self, scan, x, factor):
            body = lambda c, r: (tg.tanh(c * self.rate) + r * (factor * 2.0), c)  # noqa: E731
            return scan(body, np.zeros(3), x)[0]

    model = Model()
    step = tg.compile(lambda x, factor: model.run(tg.scan, x, factor))
    for rate in (0.1, 0.1, 0.1, 0.2, 0.3, 0.3):
        for factor in (1.0, 1.0, 2.0, 3.0):
            model.rate = rate
            same_bits(step(X, factor).data, model.run(in_python.scan, X, factor).data)
    assert step.traces <= 3


def test_examples_draw_as_vmap_says():
    f = lambda x: tg.scan(lambda c, r: (c + tg.random.normal(size=3), None), x, X)[0]  # noqa: E731
    with pytest.raises(RuntimeError, match="randomness"):
        tg.vmap(f)(T)
    assert tg.vmap(f, randomness="different")(np.zeros((4, 3))).std(axis=0).min() > 0.1
    same = tg.vmap(f, randomness="same")(np.zeros((4, 3)))
    same_bits(same, np.broadcast_to(same[0], (4, 3)))


def test_what_no_grad_ends_in_a_body():
    found = []
    for scan in BOTH:
        w = tg.param(W)

        def body(c, x, w=w):
            with tg.no_grad():
                total = tg.sum(c @ w)
            return tg.tanh(c @ w + x * total), None

        tg.sum(scan(body, C, X)[0]).backward()
        found.append(w.grad)
    same_bits(*found)


def test_the_drop_in_differentiates_a_scan():
    from tapegraph.autograd import grad, hessian
    from tapegraph.autograd import numpy as anp

    def f(scan, w):
        last, _ = scan(lambda c, x: (anp.tanh(anp.dot(c, w) + x), None), C, X)
        return anp.sum(last**2)

    for derivative in (grad, hessian):
        found, wanted = (derivative(lambda w, s=s: f(s, w))(W) for s in BOTH)
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-13)


def test_a_body_reads_no_gradient_and_copies_no_carry():
    w = tg.param(W)
    with pytest.raises(RuntimeError, match=r"\.grad"):
        tg.scan(lambda c, x: (c, w.grad), 0.0, X)
    with pytest.raises(tg.ConcretizationError):
        tg.scan(lambda c, x: (tg.tensor(c) + x, None), C, X)


def test_floats_of_a_compiled_step_are_carried_stacked_and_decide():
    def run(scan, cond, start, step):
        last, ys = scan(lambda c, x: (c + x * step, (c, step)), start, X[:, 0].astype(np.float32))
        return last, ys[0], ys[1], cond(start > step, lambda: last * 2.0, lambda: last)

    compiled = tg.compile(lambda start, step: run(tg.scan, tg.cond, start, step))
    for start, step in [(1.0, 2.0)] * 4 + [(3.0, 2.0), (0.5, 0.25), (0.5, 0.75)]:
        found = compiled(start, step)
        wanted = run(in_python.scan, in_python.chosen, np.float64(start), np.float64(step))
        for got, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(got.data, np.asarray(want), rtol=1e-6)
    assert compiled.traces == 1


@pytest.mark.parametrize("read", [tg.gather, lambda table, i: table[i]], ids=["gather", "index"])
def test_rows_of_a_table(read):
    found = []
    for scan in BOTH:
        table = tg.param(np.arange(18.0).reshape(6, 3) / 9)
        body = lambda c, i, t=table: (tg.tanh(c + read(t, i)), None)  # noqa: E731
        tg.sum(scan(body, np.zeros(3), np.array([0, 2, 2, 5]))[0]).backward()
        found.append(table.grad)
    same_bits(*found)


def kalman(scan, noise):
    """The likelihood of a filter: products, solutions and transposes of matrices."""
    motion, seen = np.array([[1.0, 0.1], [0.0, 1.0]]), np.array([[1.0, 0.0]])

    def step(carry, z):
        m, p = carry
        m, p = motion @ m, motion @ p @ motion.T + noise
        s = seen @ p @ seen.T + 0.1
        gain = np.linalg.solve(s, seen @ p).T
        miss = z - seen @ m
        return (m + gain @ miss, p - gain @ seen @ p), miss**2 / s[0, 0]

    (_, p), misses = scan(step, (np.zeros(2), np.eye(2)), X[:, :1])
    return tg.sum(misses) + tg.sum(p)


def test_a_kalman_filter():
    noise = np.array([[0.2, 0.05], [0.05, 0.1]])
    same_bits(*(tg.grad(lambda q, s=s: kalman(s, q))(noise) for s in BOTH))
    found, wanted = (tg.hessian(lambda q, s=s: kalman(s, q))(noise) for s in BOTH)
    np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-10)
    found = tg.vmap(lambda q: kalman(tg.scan, q))(np.stack([noise, 2.0 * noise]))
    wanted = [kalman(in_python.scan, q).item() for q in (noise, 2.0 * noise)]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_result_that_is_the_next_carry_is_kept_once(reverse):
    w, xs = 0.1 * np.eye(64), np.ones((500, 16, 64))

    def loss(w):
        last, _ = tg.scan(lambda h, x: (tg.tanh(h @ w + x), None), xs[0], xs, reverse=reverse)
        return tg.sum(last)

    slope = tg.grad(loss)
    slope(w)
    tracemalloc.start()
    try:
        slope(w)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2.5 * xs.nbytes  # a copy of xs, and the carries


def test_a_plan_is_made_without_running_a_loop_again(monkeypatch):
    run, ran = SCAN.forward, []
    monkeypatch.setattr(SCAN, "forward", lambda *a, **k: ran.append(1) or run(*a, **k))
    step = tg.compile(lambda w: tg.scan(lambda h, x: (h @ w + x, None), C, X)[0])
    for calls in range(1, 4):
        same_bits(step(W).data, in_python.scan(lambda h, x: (h @ W + x, None), C, X)[0])
        assert len(ran) == calls


# ------------------------------------------------------------------ what goes wrong in a round

V = np.arange(4.0)
OUT_OF_RANGE = r"received index 4 for axis 0 of length 4; expected an index in \[-4, 4\)\."


@pytest.mark.parametrize(
    ("body", "init", "said"),
    [
        (lambda i, c: c + tg.tensor(V)[i], 0.0, f"getitem: {OUT_OF_RANGE}"),
        (lambda i, c: c + tg.take(V, i), 0.0, f"gather: {OUT_OF_RANGE}"),
        (lambda i, c: tg.add_at(c, i, 1.0), V, f"getitem: {OUT_OF_RANGE}"),
        (lambda i, c: c + tg.one_hot(i, 4), V, r"one_hot: received label 4 of 4; .*\[0, 4\)\."),
        (
            lambda i, c: c + tg.softmax_crossentropy(V[None], np.reshape(i, (1,))),
            0.0,
            r"softmax_crossentropy: received class 4 of 4; .*\[0, 4\)\.",
        ),
    ],
)
def test_an_index_out_of_range_in_a_later_round_is_named(body, init, said):
    line = rf" \(at {__file__}:{body.__code__.co_firstlineno}, in iteration 4"
    state = tg.tensor(1.0)

    @tg.compile
    def step(init, places):
        state.assign(state * 2.0)
        return tg.scan(lambda c, i: (body(i, c), None), init, places)[0]

    with pytest.raises(IndexError, match=f"^{said}{line} of 6"):
        tg.fori_loop(0, 6, body, init)
    with pytest.raises(IndexError, match=f"^{said}{line}"):
        tg.while_loop(lambda c: c[0] < 6, lambda c: (c[0] + 1, body(c[0], c[1])), (0, init))
    with pytest.raises(IndexError, match=f"^{said}.* in a branch, in iteration 4 of 6"):
        tg.fori_loop(0, 6, lambda i, c: tg.cond(i > 2, lambda: body(i, c), lambda: c), init)
    with pytest.raises(IndexError, match=f"^{said}{line[:-1]}3 of 4, in iteration 1 of 2"):
        tg.fori_loop(0, 2, lambda k, c: tg.fori_loop(0, 4, lambda i, c: body(i + k, c), c), init)
    for _ in range(3):
        step(init, np.arange(5) % 4)
    with pytest.raises(IndexError, match=f"^{said}{line} of 5"):
        step(init, np.arange(5))
    assert state.item() == 8.0


def test_the_line_is_that_of_the_loop_that_failed_where_another_is_equal():
    def first(i, c):
        return c + tg.tensor(V)[i]

    def again(i, c):
        return c + tg.tensor(V)[i]

    for body in (first, again, first):
        line = body.__code__.co_firstlineno + 1
        with pytest.raises(IndexError, match=f"{__file__}:{line}, in"):
            tg.fori_loop(0, 6, body, 0.0)


def test_a_matrix_that_fails_in_a_later_round_is_named():
    def body(c, x):
        return np.linalg.cholesky(c - x), None

    line = rf"\(at {__file__}:{body.__code__.co_firstlineno + 1}, in iteration 1 of 3\)"
    with pytest.raises(np.linalg.LinAlgError, match=rf"^cholesky: .*positive definite\. {line}"):
        tg.scan(body, np.eye(2), np.arange(3.0))


def test_an_error_of_the_users_own_leaves_a_loop_as_it_is():
    def forward(x):
        if x > 1.0:
            raise KeyError("too", "large")
        return x

    grow = tg.defop(forward, vjp=lambda g, y, x: (g,), name="scans_grow")
    with pytest.raises(KeyError) as caught:
        tg.fori_loop(0, 4, lambda i, x: grow(x) + 1.0, 0.0)
    assert caught.value.args == ("too", "large")


GENERATOR = np.random.default_rng(0)


class Noise:
    def __init__(self):
        self.rng = np.random.default_rng(1)

    def __call__(self, x):
        return x + self.rng.normal()


def noisy():
    hidden = np.random.default_rng(2)
    noise, python = Noise(), random.Random(3)
    held, layers = {"rng": hidden}, [[noise]]
    return {
        "np.random": lambda x: x + np.random.normal(),  # noqa: NPY002
        "a global": lambda x: x + GENERATOR.normal(size=()),
        "a closure": lambda x: x + hidden.normal(),
        "a default": lambda x, rng=hidden: x + rng.normal(),
        "an object": lambda x: noise(x),
        "a method": lambda x: x + noise.rng.uniform(),
        "a function inside": lambda x: (lambda y: y * hidden.normal())(x),
        "Python's": lambda x: x + random.gauss(0.0, 1.0),
        "Python's own": lambda x: x + python.random(),
        "a wrapper": functools.partial(lambda k, x: x * k + hidden.normal(), 2.0),
        "an argument": functools.partial(lambda rng, x: x + rng.normal(), hidden),
        "a dict": lambda x: x + held["rng"].normal(),
        "a layer in lists": lambda x: layers[0][0](x),
        "a gradient": tg.grad(lambda x: x * hidden.normal()),
    }


@pytest.mark.parametrize("where", noisy())
def test_a_number_of_another_generator_does_not_stand_still(where):
    f = noisy()[where]
    for loop in (
        lambda: tg.scan(lambda c, _: (c, f(c)), 0.0, None, length=5),
        lambda: tg.fori_loop(0, 3, lambda i, c: f(c), 0.0),
        lambda: tg.while_loop(lambda c: c < 3.0, f, 0.0),
        lambda: tg.cond(True, f, lambda c: c, 0.0),
        lambda: tg.vmap(f)(V),
        lambda: tg.integrate.odeint(lambda y, t: f(y), 1.0, [0.0, 1.0]),
    ):
        with pytest.raises(RuntimeError, match=r"the function runs once.*tg\.random"):
            loop()


MAKERS = {
    "default_rng": lambda x: x + np.random.default_rng().normal(),
    "RandomState": lambda x: x + np.random.RandomState().normal(),  # noqa: NPY002
    "Random": lambda x: (lambda: x + random.Random().random())(),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_a_generator_made_inside_without_a_seed_warns(maker):
    """Its numbers stand still, where those of a Python loop would be new."""
    f, text = MAKERS[maker], rf": the function runs once, and <lambda> calls {maker}\(\) without"
    with pytest.warns(UserWarning, match=f"^fori_loop{text}"):
        got = tg.fori_loop(0, 2, lambda i, c: f(c), 0.0).item()
    with pytest.warns(UserWarning, match=f"^vmap{text}"):
        first, second, *_ = tg.vmap(f)(V) - V
    assert got != 0.0
    assert first == pytest.approx(second)


def test_generators_that_are_named_and_do_not_draw_are_no_error():
    def f(c, x):
        return c + np.tanh(x) + tg.random.normal(), GENERATOR if x is None else x

    def drawn(c, x):
        noise = np.random.default_rng(0).normal(size=3)  # a new one each time, the same numbers
        return c + noise, np.random.RandomState(seed=len(c)).normal() * x  # noqa: NPY002

    tg.random.seed(0)
    got = tg.scan(f, np.zeros(3), X)[0]
    tg.random.seed(0)
    want = in_python.scan(f, np.zeros(3), X)[0]
    same_bits(got.data, want.data)
    same_bits(tg.scan(drawn, C, X)[0].data, in_python.scan(drawn, C, X)[0].data)


def test_a_list_in_place_of_an_array_is_told_by_the_name_of_the_loop():
    def turned(i, y):
        return [-y[1], y[0]]

    with pytest.raises(TypeError, match=r"^fori_loop: .*For one array return np\.stack"):
        tg.fori_loop(0, 3, turned, np.ones(2))
    with pytest.raises(TypeError, match=r"^fori_loop: received a carry of shape \(\)"):
        tg.fori_loop(0, 3, lambda i, y: y[0], np.ones(2))
    got = tg.fori_loop(0, 3, lambda i, y: np.stack(turned(i, y)), np.array([1.0, 2.0]))
    np.testing.assert_array_equal(got.data, [2.0, -1.0])


def test_a_slice_at_a_place_of_the_loop_is_a_take():
    for table in (V, tg.tensor(V)):
        with pytest.raises(tg.ConcretizationError, match=r"tg\.take\(array, i \+ np\.arange\(n\)"):
            tg.fori_loop(0, 2, lambda i, c, table=table: c + table[i : i + 2], np.zeros(2))
    got = tg.fori_loop(0, 3, lambda i, c: c + tg.take(V, i + np.arange(2)), np.zeros(2))
    np.testing.assert_array_equal(got.data, sum(V[i : i + 2] for i in range(3)))


def filled(y, *_):
    dy = np.zeros(2)
    dy[0] = y[1]
    return dy


@pytest.mark.parametrize(
    "run",
    [
        lambda y: tg.integrate.odeint(filled, y, [0.0, 1.0]),
        lambda y: tg.scan(lambda c, x: (filled(c), x), y, np.ones(3)),
        lambda y: tg.fori_loop(0, 3, lambda i, c: filled(c), y),
        lambda y: tg.while_loop(lambda c: c[0] < 0.0, filled, y),
        lambda y: tg.compile(filled)(y),
        lambda y: tg.vmap(filled)(np.stack([y, y])),
        lambda y: tg.optim.root(filled, y),
        lambda y: tg.grad(lambda y: tg.sum(filled(y)))(y),
        lambda y: tg.jvp(filled, (y,), (y,)),
        lambda y: tg.grad(lambda y: tg.sum(tg.integrate.odeint(filled, y, [0.0, 1.0])))(y),
        lambda y: tg.vmap(lambda y: np.array([y, 2.0 * y]))(y),
    ],
)
def test_an_array_that_is_filled_is_told_to_stack(run):
    with pytest.raises(TypeError, match=r"z\[0\] = x.*np\.stack\(\[x, y\]\)"):
        run(np.ones(2))
