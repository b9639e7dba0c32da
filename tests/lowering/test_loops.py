"""Loops and branches in TensorFlow against the native engine: backwards, steps, XLA, exports."""

from __future__ import annotations

import types
from contextlib import nullcontext

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.testing import PARITY_TOLERANCE
from tests.loops import test_draws_in_branches as draws
from tests.loops import test_random_bodies as random_bodies
from tests.loops import test_scans
from tests.optional import optional
from tests.quick import thinned

tf = optional("tensorflow")

rng = np.random.default_rng(7)
W = rng.normal(size=(3, 3))
T = rng.normal(size=(3, 3))
X = rng.normal(size=(5, 3))
C = rng.normal(size=3)


@pytest.fixture(autouse=True)
def in_graphs(graph_engine):
    """Every test runs in TensorFlow where it does not say otherwise."""


def arrays(found):
    """Plain arrays of what a function returned."""
    every = found if isinstance(found, tuple) else (found,)
    return [x.numpy() if isinstance(x, tg.Tensor) else np.asarray(x) for x in every]


def same(found, wanted, **tolerance):
    for got, want in zip(arrays(found), arrays(wanted), strict=True):
        rtol, atol = PARITY_TOLERANCE[want.dtype.name]
        np.testing.assert_allclose(got, want, **{"rtol": rtol, "atol": atol, **tolerance})


def in_a_step(f, *args, xla=False):
    """What the first compiled call gives, and that a graph gave it."""
    step = tg.compile(f, xla=xla)
    found = [step(*args) for _ in range(3)][-1]
    said = str(step.explain())
    assert "ran in tensorflow" in said, said
    assert ("tensorflow with XLA" in said) == xla, said
    return found


def natively(f, *args):
    with tg.use_backend("native"):
        return f(*args)


# Functions of a matrix and a vector


def while_loop(w, c, **options):
    grown = lambda h: tg.tanh(h @ w) * 0.3 + h * 1.3  # noqa: E731
    return tg.while_loop(lambda h: tg.sum(h * h) < 50.0, grown, c, **options)


def bounded(w, c):
    return while_loop(w, c, max_steps=20)


def stopped(w, c):
    return while_loop(w, c, max_steps=2)


def true_branch(w, c):
    return tg.cond(tg.sum(c * c) > 0, lambda c: tg.sin(c @ w), lambda c: c * c * 2.0, c)


def false_branch(w, c):
    return tg.cond(tg.sum(c * c) < 0, lambda c: tg.sin(c @ w), lambda c: c * c * 2.0, c)


BRANCHES = [
    lambda w, c: tg.sin(c @ w),
    lambda w, c: c * c * 2.0,
    lambda w, c: c @ w @ w,
]


def switch(index):
    return lambda w, c: tg.switch(
        tg.sum(c * 0.0).astype(int) + index, [lambda c, f=f: f(w, c) for f in BRANCHES], c
    )


def scan(w, c, **options):
    last, ys = tg.scan(lambda h, x: (tg.tanh(h @ w + x), h * x), c, X, **options)
    return last * tg.sum(ys)


def nested(w, c):
    def body(h, x):
        h = tg.cond(tg.sum(h) > 0, lambda h: tg.tanh(h @ w), lambda h: h * 0.5 + x, h)
        h = tg.while_loop(lambda h: tg.sum(h * h) < 1.0, lambda h: h * 1.5 + 0.1, h, max_steps=30)
        return h, tg.fori_loop(0, 3, lambda i, a: a * h + i * 0.1, h)

    h, ys = tg.scan(body, c, X)
    return h + tg.sum(ys)


FUNCTIONS = {
    "while": while_loop,
    "bounded": bounded,
    "stopped": stopped,
    "true branch": true_branch,
    "false branch": false_branch,
    "switch below": switch(-3),
    "switch": switch(1),
    "switch above": switch(7),
    "scan": scan,
    "nested": nested,
}


def loss_of(f):
    return lambda w, c: tg.sum(f(w, c) ** 2)


def second(loss):
    return lambda w, c: tg.hvp(lambda w: loss(w, c), (w,), (T,))


DERIVATIVES = {
    "grad": lambda loss: tg.grad(loss, (0, 1)),
    "jvp": lambda loss: lambda w, c: tg.jvp(lambda w: loss(w, c), (w,), (T,))[1],
    "hvp": second,
    "vmap of grad": lambda loss: (
        lambda w, c: tg.vmap(tg.grad(loss), (None, 0))(w, tg.stack([c, c * 0.3]))
    ),
}


QUICK_FUNCTIONS = {"while", "true branch", "switch below", "nested"}


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICK_FUNCTIONS else [pytest.mark.thorough])
        for name in FUNCTIONS
    ],
)
def test_a_backward_gives_the_native_gradients(name):
    def gradients():
        w, c = tg.param(W), tg.param(C)
        loss_of(FUNCTIONS[name])(w, c).backward()
        return w.grad, c.grad

    found = gradients()
    assert tg.last_backward().backend == "tensorflow"
    same(found, natively(gradients))


# Of second order it needs max_steps. Gradients in a step: a backward runs each function's, below
# XLA runs those of the nested ones.
QUICK_PAIRS = {("nested", "vmap of grad"), ("scan", "hvp")}
PAIRS = [(f, d) for f in FUNCTIONS for d in DERIVATIVES if (f, d) != ("while", "hvp")]


@pytest.mark.parametrize(
    "name, derivative",
    [
        pytest.param(*pair, marks=[] if pair in QUICK_PAIRS else [pytest.mark.thorough])
        for pair in PAIRS
    ],
)
def test_a_step_gives_the_native_derivatives(name, derivative):
    f = DERIVATIVES[derivative](loss_of(FUNCTIONS[name]))
    same(in_a_step(f, W, C), natively(f, W, C))


@pytest.mark.parametrize(
    "name", thinned(["scan", "bounded", "false branch", "switch", "nested"], 5)
)
def test_xla_gives_the_native_gradients(name):
    f = DERIVATIVES["grad"](loss_of(FUNCTIONS[name]))
    same(in_a_step(f, W, C, xla=True), natively(f, W, C))


def test_xla_says_that_it_needs_max_steps(monkeypatch):
    monkeypatch.delenv("TAPEGRAPH_STRICT")
    same(in_a_step(while_loop, W, C, xla=True), natively(while_loop, W, C))
    step = tg.compile(tg.grad(loss_of(while_loop)), xla=True)
    with pytest.warns(RuntimeWarning, match="while_loop only with max_steps"):
        found = [step(W, C) for _ in range(3)][-1]
    same(found, natively(tg.grad(loss_of(while_loop)), W, C))


def test_second_derivatives_of_a_while_loop_need_max_steps(monkeypatch):
    monkeypatch.delenv("TAPEGRAPH_STRICT")
    for f, ran in ((while_loop, "native"), (bounded, "tensorflow")):
        slope = tg.grad(loss_of(f))
        of_slope = tg.grad(lambda w, c, slope=slope: tg.sum(slope(w, c) * T))
        step = tg.compile(of_slope)
        with nullcontext() if f is bounded else pytest.warns(RuntimeWarning, match="max_steps"):
            found = [step(W, C) for _ in range(3)][-1]
        said = str(step.explain())
        assert f"ran in {ran}" in said and ("max_steps" in said) == (ran == "native"), said
        same(found, natively(of_slope, W, C))


OPTIONS = [
    {"reverse": reverse, "checkpoint": checkpoint}
    for reverse in (False, True)
    for checkpoint in (None, 2, "sqrt", 7)
]


@pytest.mark.parametrize("options", thinned(OPTIONS, 3), ids=str)
@pytest.mark.one_in(3)
def test_a_scan_with_options(options):
    dtype = np.float32 if options["reverse"] else np.float64
    found = test_scans.trained(tg.scan, dtype, **options)
    assert tg.last_backward().backend == "tensorflow"
    same(tuple(found), tuple(natively(lambda: test_scans.trained(tg.scan, dtype, **options))))


def test_jacobians_and_hessians_in_a_step(thorough):
    last = lambda w: scan(w, C, checkpoint=2)  # noqa: E731
    same(in_a_step(tg.jacobian(last), W), natively(tg.jacobian(last), W))
    if thorough:
        hessian = tg.hessian(lambda w: tg.sum(scan(w, C)))
        same(in_a_step(hessian, W), natively(hessian, W))


def test_complex_numbers():
    def f(z):
        last, ys = tg.scan(lambda c, x: (tg.tanh(c @ z + x), c @ W), C + 0j, X * (1 - 0.5j))
        return tg.sum(tg.abs(last) ** 2) + tg.sum(tg.abs(ys) ** 2)

    z = (W + 1j * T) / 3
    same(in_a_step(tg.grad(f), z), natively(tg.grad(f), z))


def test_no_rounds():
    none = np.zeros((0, 3))
    f = lambda w, c: tg.sum(tg.scan(lambda h, x: (h @ w + x, h), c, none)[0] ** 2)  # noqa: E731
    same(in_a_step(tg.grad(f, (0, 1)), W, C), (np.zeros((3, 3)), 2 * C))


def test_draws_are_those_of_the_native_engine():
    def trained(engine):
        with tg.use_backend(engine):
            tg.random.seed(3)
            w = tg.param(W)
            optimizer = tg.SGD([w], 0.01)

            @tg.compile
            def step(x):
                def f(c, row):
                    return tg.dropout(tg.tanh(c @ w + row), 0.3) + tg.random.normal(size=3), None

                optimizer.zero_grad()
                tg.sum(tg.scan(f, C, x)[0] ** 2).backward()
                optimizer.step()

            for _ in range(6):
                step(X)
            assert f"ran in {engine}" in str(step.explain())
            return w.numpy()

    same(trained("tensorflow"), trained("native"))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", draws.FUNCTIONS)
def test_draws_in_branches_are_those_of_the_native_engine(name):
    f = draws.FUNCTIONS[name]
    for at in (0.0, 10.0):
        same(draws.gradient(f, tg, at, 3), natively(draws.gradient, f, tg, at, 3))
        assert tg.last_backward().backend == "native"  # of the second
    draws.gradient(f, tg, 0.0, 3)
    assert tg.last_backward().backend == "tensorflow"


@pytest.mark.thorough
def test_a_step_draws_in_branches_and_leaves_the_stream_where_the_native_one_does():
    calls = lambda step, at: step(at)  # noqa: E731
    step, *found = draws.trained(calls)
    assert "ran in tensorflow" in str(step.explain())
    _, *wanted = natively(draws.trained, calls)
    same((np.array(found[0]), found[1]), (np.array(wanted[0]), wanted[1]))
    assert found[2] == wanted[2]


def test_xla_draws_no_numbers_in_a_branch(monkeypatch):
    monkeypatch.delenv("TAPEGRAPH_STRICT")
    step = tg.compile(lambda w: draws.branch(tg, w, 0.0), xla=True)
    found = []
    tg.random.seed(2)
    with pytest.warns(RuntimeWarning, match="XLA compiles no draw in a branch"):
        found += [step(draws.W) for _ in range(3)]
    tg.random.seed(2)
    for got in found:
        same(got, natively(draws.branch, tg, draws.W, 0.0))


@pytest.mark.thorough
def test_many_runs_of_a_step_with_a_scan():
    w = tg.param(W)
    optimizer = tg.SGD([w], 0.01)

    @tg.compile
    def step(c):
        optimizer.zero_grad()
        loss = tg.sum(scan(w, c))
        loss.backward()
        optimizer.step()
        return loss

    def trained():
        w.assign(W)
        step.reset()
        return step.scan(np.array([C, C * 0.5, C * 0.1] * 3)), w.numpy()

    same(trained(), natively(trained))


# Zeros


def masked(a):
    last, _ = tg.scan(lambda c, x: (tg.where(c > 0, tg.log(c), c * x), None), a, X)
    return tg.sum(last)


START = np.array([-1.0, 0.0, 2.0])


def test_zero_stays_zero_in_a_backward():
    def gradient():
        a = tg.param(START)
        masked(a).backward()
        return a.grad

    found = gradient()
    assert tg.last_backward().backend == "tensorflow"
    wanted = natively(gradient)
    assert np.isfinite(wanted).all()
    same(found, wanted)


def test_a_gradient_without_a_number_has_a_step_run_natively():
    step = tg.compile(tg.grad(masked))
    for _ in range(3):
        same(step(START), natively(tg.grad(masked), START))
    assert "keeps zeros" in str(step.explain())


def test_a_gradient_inside_of_a_round_is_looked_at():
    """What a round makes of it may be a number again."""

    def body(c, x):
        slope = tg.grad(lambda q: tg.sum(tg.where(q > 0, tg.log(q), q * 3.0)))(c)
        return c, np.where(np.isnan(slope), -7.0, slope)

    slopes = lambda c: tg.scan(body, c, X)[1]  # noqa: E731
    step = tg.compile(slopes)
    for _ in range(3):
        same(step(C + 5.0), natively(slopes, C + 5.0))
    assert "ran in tensorflow" in str(step.explain())
    for _ in range(2):
        same(step(np.zeros(3)), np.full((5, 3), 3.0))


# Sizes


def test_a_graph_does_not_grow_with_the_rounds():
    def size(length):
        w = tg.param(W)
        y = tg.sum(tg.scan(lambda c, x: (tg.tanh(c @ w + x), None), C, np.ones((length, 3)))[0])
        graph = tg.lowering.lower(y).graph_def
        return sum(len(f.node_def) for f in graph.library.function) + len(graph.node)

    assert size(3) == size(300)


# Random bodies


def check(seed):
    body = random_bodies.RandomBody(seed)
    found = random_bodies.gradients(body, tg.scan, checkpoint=body.checkpoint)
    assert tg.last_backward().backend == "tensorflow"
    wanted = natively(random_bodies.gradients, body, tg.scan)
    for got, want in zip(found, wanted, strict=True):
        assert (got is None) == (want is None)
        if want is not None:
            same(got, want)


def check_second(seed):
    body = random_bodies.RandomBody(seed)
    loss = lambda *start: body.run(tg.scan, start, body.xs, body.read)  # noqa: E731
    directions = tuple(np.cos(np.arange(x.size)).astype(x.dtype) for x in body.start)
    f = lambda *start: tg.hvp(loss, start, directions)  # noqa: E731
    same(tuple(in_a_step(f, *body.start)), tuple(natively(f, *body.start)))


@pytest.mark.parametrize("seed", thinned(range(20), 3))
@pytest.mark.one_in(4)
def test_random_bodies(seed):
    check(seed)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.one_in(2)
def test_second_derivatives_of_random_bodies(seed):
    check_second(seed)


@pytest.mark.thorough
@pytest.mark.parametrize("first", range(20, 200, 20))
def test_many_random_bodies(first):
    for seed in range(first, first + 20):
        check(seed)


@pytest.mark.thorough
@pytest.mark.parametrize("first", range(2, 100, 7))
def test_second_derivatives_of_many_random_bodies(first):
    for seed in range(first, first + 7):
        check_second(seed)


# Exports

P = rng.normal(size=(4, 5, 3))


def exported(f, tmp_path, x):
    """The loaded SavedModel of a function, for batches of any size."""
    tg.export(f, str(tmp_path / "model"), x)
    return tf.saved_model.load(str(tmp_path / "model"))


@pytest.mark.thorough  # TensorFlow takes seconds to save and differentiate loops
def test_a_saved_model_has_loops_for_batches_of_any_size(tmp_path, thorough):
    w = tg.param(W, name="w")

    def loss(x):
        step = lambda h, row: (tg.tanh(h @ w + row), h * row)  # noqa: E731
        h, ys = tg.scan(step, x[:, 0, :] * 0.0, np.swapaxes(x, 0, 1))
        h = tg.cond(tg.sum(h) > 0, lambda h: h @ w, lambda h: h * 2.0, h)
        return tg.mean(h * h) + tg.mean(ys)

    model = exported(loss, tmp_path, P)
    (variable,) = model.parameters.values()
    for x in (P[:2], np.concatenate([P, P])):
        found = model.signatures["value_and_gradients"](x=tf.constant(x))
        wanted = natively(tg.value_and_grad(lambda w_, x=x: replaced(loss, w, w_)(x)), W)
        same((found["loss"].numpy(), found["gradient_w"].numpy()), wanted)
    if not thorough:  # TensorFlow takes seconds to differentiate loops of a SavedModel twice
        return
    with tf.GradientTape() as tape:
        with tf.GradientTape() as inner:
            value = model(tf.constant(x))["output"]
        total = tf.reduce_sum(inner.gradient(value, variable))
    second = tg.grad(lambda w_: tg.sum(tg.grad(lambda v: replaced(loss, w, v)(x))(w_)))
    same(tape.gradient(total, variable).numpy(), natively(second, W))


def replaced(f, old, new):
    """A function that reads another tensor from its closure."""
    cells = [new if c.cell_contents is old else c.cell_contents for c in f.__closure__]
    cells = tuple(types.CellType(x) for x in cells)
    return types.FunctionType(f.__code__, f.__globals__, f.__name__, f.__defaults__, cells)


@pytest.mark.thorough
def test_a_saved_model_scans_over_the_batch(tmp_path):
    w = tg.param(W)

    def f(x):
        last, ys = tg.scan(lambda h, row: (tg.tanh(h @ w + row), tg.sum(h)), np.zeros(3), x)
        return {"last": last, "sums": ys}

    model = exported(f, tmp_path, X)
    for x in (X, X[:3]):
        found, wanted = model(tf.constant(x)), natively(f, x)
        same(tuple(found[k].numpy() for k in wanted), tuple(wanted.values()))


def test_an_export_refuses_a_round_with_a_number_of_its_batch(tmp_path):
    mean = lambda h, row, n: (h + row / n, None)  # noqa: E731

    def f(x):
        return tg.scan(lambda h, row: mean(h, row, len(x)), x[:, 0] * 0.0, np.swapaxes(x, 0, 1))[0]

    with pytest.raises(ValueError, match="the number 4, then 5"):
        exported(f, tmp_path, P)


def test_onnx_refuses_a_loop_by_its_name(tmp_path):
    pytest.importorskip("onnx")
    with pytest.raises(NotImplementedError, match="scan recorded at"):
        tg.export(lambda x: tg.scan(lambda h, x: (h + x, None), C, x)[0], tmp_path / "f.onnx", X)
