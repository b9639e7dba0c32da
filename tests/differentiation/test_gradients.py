"""`gradients`: what it returns, what it leaves alone, what it refuses."""

from __future__ import annotations

import gc
import math
import weakref

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.recording.linearize import linearize


def test_by_leaves_and_by_results(backend):
    x, w = tg.param([1.0, 2.0]), tg.param(3.0)
    h = x * w
    y = tg.sum(h**2)
    by_y, by_h, by_x, by_w = tg.gradients(y, [y, h, x, w])
    assert by_y.item() == 1.0
    np.testing.assert_allclose(by_h.data, 2 * h.data)
    np.testing.assert_allclose(by_x.data, 2 * h.data * 3.0)
    np.testing.assert_allclose(by_w.data, 2 * np.sum(h.data * x.data))
    assert tg.last_backward().backend == backend
    assert not any(g.requires_grad for g in (by_y, by_h, by_x, by_w))


def test_nothing_is_written(backend):
    x = tg.param([1.0, 2.0])
    h = x * 2.0
    h.retain_grad()
    tg.gradients(tg.sum(h), [h], create_graph=True)
    tg.gradients(tg.sum(h), [x])
    assert x.grad is None and h.grad is None
    tg.sum(h).backward()
    np.testing.assert_array_equal(x.grad, 2.0)


def test_a_seed_and_one_tensor_for_several(backend):
    x = tg.param([[1.0, 2.0], [3.0, 4.0]])
    seed = np.array([[1.0, 0.0], [0.0, 2.0]])
    for given in (seed, seed.tolist(), tg.tensor(seed)):
        (g,) = tg.gradients(x**2, x, given)
        np.testing.assert_allclose(g.data, 2 * x.data * seed)
    (g,) = tg.gradients(x**2, x)
    np.testing.assert_allclose(g.data, 2 * x.data)
    a, b = tg.gradients(x**2, [x, x])
    np.testing.assert_array_equal(a.data, b.data)


def test_a_seed_is_differentiated(backend):
    x, seed = tg.param([1.0, 2.0]), tg.param([3.0, 5.0])
    (g,) = tg.gradients(x**3, [x], seed, create_graph=True)
    by_x, by_seed = tg.gradients(tg.sum(g), [x, seed])
    np.testing.assert_allclose(by_x.data, 6 * x.data * seed.data)
    np.testing.assert_allclose(by_seed.data, 3 * x.data**2)


def test_a_graph_that_was_created_is_a_tape_like_any_other(backend):
    x = tg.param([0.3, -0.5])
    (g,) = tg.gradients(tg.sum(tg.sin(x) * x), [x], create_graph=True)
    assert {"cos", "mul"} <= {entry.op for entry in linearize([g])}
    tg.sum(g**2).backward()
    s, c, a = np.sin(x.data), np.cos(x.data), x.data
    np.testing.assert_allclose(x.grad, 2 * (s + a * c) * (2 * c - a * s), rtol=1e-12)
    assert tg.last_backward().backend == backend


def test_a_graph_that_was_created_is_lowered():
    pytest.importorskip("tensorflow")
    x = tg.param([0.3, -0.5])
    (g,) = tg.gradients(tg.sum(tg.tanh(x)), [x], create_graph=True)
    types = [name for nodes in tg.lowering.lower(g).node_types for name in nodes]
    assert "Tanh" in types and "Mul" in types


def test_tenth_derivative_of_sine(backend):
    x = tg.param(0.7)
    y = tg.sin(x)
    for order in range(1, 11):
        (y,) = tg.gradients(y, [x], create_graph=True)
        assert y.item() == pytest.approx(math.sin(0.7 + order * math.pi / 2), rel=1e-12)


def test_a_gradient_penalty_trains(backend):
    """The norm of the gradient by the input, as in WGAN-GP, against a closed form."""
    w, x = tg.param([0.5, -1.5]), tg.param([[1.0, 2.0], [3.0, -1.0]])
    (g,) = tg.gradients(tg.sum((x @ w) ** 2), [x], create_graph=True)
    tg.sum(g**2).backward()  # g = 2 (x w) w', so its square is 4 (x w)^2 |w|^2
    p, n = x.data @ w.data, np.sum(w.data**2)
    want = 8 * n * (x.data.T @ p) + 8 * np.sum(p**2) * w.data
    np.testing.assert_allclose(w.grad, want, rtol=1e-12)


def test_under_no_grad(backend):
    x = tg.param(2.0)
    y = x**3
    with tg.no_grad():
        (g,) = tg.gradients(y, [x], create_graph=True)
        (plain,) = tg.gradients(y, [x])
    assert g.requires_grad and not plain.requires_grad
    assert tg.gradients(g, [x])[0].item() == 12.0


def test_what_y_does_not_depend_on(backend):
    x, other = tg.param([1.0, 2.0]), tg.param(1.0, name="other")
    y = tg.sum(x * x)
    with pytest.raises(RuntimeError, match=r"xs\[1\], param 'other' .*allow_unused=True"):
        tg.gradients(y, [x, other])
    by_x, by_other = tg.gradients(y, [x, other], allow_unused=True)
    assert by_other is None
    np.testing.assert_array_equal(by_x.data, [2.0, 4.0])
    assert tg.gradients(tg.tensor(1.0), [x], allow_unused=True) == (None,)
    with pytest.raises(RuntimeError, match="does not depend"):
        tg.gradients(x * 2.0, [y])  # the other way round
    assert tg.gradients(y, []) == ()


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda x: tg.gradients(3.0, [x]), TypeError, ["float 3.0", "'y'"]),
        (lambda x: tg.gradients(tg.Value(1.0), [x]), TypeError, ["Value", "backward()"]),
        (lambda x: tg.gradients(tg.Dual(1.0, 1.0), [x]), TypeError, ["Dual", "tg.jvp"]),
        (lambda x: tg.gradients(x * x, [x, 2.0]), TypeError, ["xs[1]", "2.0"]),
        (lambda x: tg.gradients(x * x, [x], [1.0]), ValueError, ["(1,)", "(2,)"]),
        (lambda x: tg.gradients(x * x, [x], "a"), TypeError, ["'seed'", "'a'"]),
    ],
)
def test_errors(call, kind, words):
    x = tg.param([1.0, 2.0])
    with pytest.raises(kind) as caught:
        call(x)
    assert all(word in str(caught.value) for word in words)
    assert x.grad is None


def test_a_leaf_that_was_changed_is_refused(backend):
    x = tg.param([1.0, 2.0])
    y = tg.sum(x**2)
    x.data[0] = 5.0
    for create_graph in (False, True):
        with pytest.raises(RuntimeError, match="changed after"):
            tg.gradients(y, [x], create_graph=create_graph)


def test_a_cleared_entry_is_refused(backend):
    x = tg.param([1.0, 2.0])
    y = tg.sum(x**2)
    tg.tape_reset()
    for create_graph in (False, True):
        with pytest.raises(RuntimeError, match="cleared"):
            tg.gradients(y * 2.0, [x], create_graph=create_graph, allow_unused=True)


def test_what_is_older_than_all_is_not_walked():
    """A long history before the tensors that are asked for costs nothing."""
    x = tg.param(1.0)
    long = x
    for _ in range(2000):
        long = long * 1.0
    h = tg.param(2.0)
    with tg.use_backend("native"):
        (g,) = tg.gradients(h * h * long, [h])
    assert g.item() == 4.0
    assert tg.last_backward().entries < 10


def test_gradients_hold_no_graph():
    x = tg.param(np.ones(3))
    h = tg.sin(x)
    gone = weakref.ref(h)
    (g,) = tg.gradients(tg.sum(h), [x])
    del h
    gc.collect()
    assert gone() is None
    assert g.shape == (3,)


def test_a_rule_for_arrays_alone_is_refused_by_name_and_line():
    @tg.defop(vjp=lambda g, y, x: g * 2.0 * x)
    def by_hand_squared(x):
        return x * x

    x = tg.param([1.0, 2.0])
    y = tg.sum(by_hand_squared(x))
    np.testing.assert_array_equal(tg.gradients(y, [x])[0].data, [2.0, 4.0])
    with pytest.raises(NotImplementedError, match=r"by_hand_squared: .*jvp= .*test_gradients"):
        tg.gradients(y, [x], create_graph=True)


def test_a_tangent_rule_gives_derivatives_of_any_order():
    @tg.defop(
        vjp=(lambda g, y, a, b: g * b * b, lambda g, y, a, b: 2.0 * g * a * b),
        jvp=lambda t, y, a, b: sum(
            part
            for part in (
                None if t[0] is None else t[0] * b * b,
                None if t[1] is None else 2.0 * t[1] * a * b,
            )
            if part is not None
        ),
    )
    def times_square(a, b):
        return a * b * b

    a, b = tg.param([1.0, -2.0]), tg.param(3.0)  # broadcast
    y = tg.sum(times_square(a, b))
    by_a, by_b = tg.gradients(y, [a, b], create_graph=True)
    np.testing.assert_allclose(by_a.data, 9.0)
    assert by_b.item() == pytest.approx(-6.0)
    np.testing.assert_allclose(tg.gradients(by_b, [a])[0].data, 6.0)
    (second,) = tg.gradients(by_b, [b], create_graph=True)
    assert second.item() == pytest.approx(-2.0)


# ------------------------------------------------------------------ in a compiled step


def compared(write, backend):
    """Run a step eagerly and compiled; the numbers of both, and of the parameters at the end."""
    rng = np.random.default_rng(0)
    batches = [rng.standard_normal((5, 3)) for _ in range(5)]
    weights = rng.standard_normal((3, 4)) / 2
    found = []
    for compiled in (False, True):
        w = tg.param(weights)
        step = write(w, tg.SGD([w], 0.05))
        step = tg.compile(step) if compiled else step
        with tg.use_backend(backend if compiled else "native"):
            losses = [step(tg.tensor(x)).item() for x in batches]
        found.append((losses, w.data.copy()))
    close = {} if backend == "tensorflow" else {"rtol": 0.0}
    for got, want in zip(found[1], found[0], strict=True):
        np.testing.assert_allclose(got, want, **({"rtol": 1e-9} | close))


@pytest.mark.parametrize("create_graph", [False, True])
def test_in_a_compiled_step(create_graph, backend):
    def write(w, optimizer):
        def step(x):
            h = tg.tanh(x @ w)
            y = tg.sum(h * h)
            by_w, by_h = tg.gradients(y, [w, h], create_graph=create_graph)
            loss = y + tg.sum(by_w * w) + tg.sum(by_h * h)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        return step

    compared(write, backend)


def test_beside_a_backward_of_the_same_result_in_a_compiled_step(backend):
    def write(w, optimizer):
        def step(x):
            h = tg.tanh(x @ w)
            loss = tg.sum(h * h)
            (by_h,) = tg.gradients(loss, [h])
            optimizer.zero_grad()
            loss.backward()
            w.grad = w.grad + 0.01 * tg.sum(by_h)
            optimizer.step()
            return loss

        return step

    compared(write, backend)


@pytest.mark.parametrize("name", ["grad", "value_and_grad", "hvp", "checkpoint", "hessian"])
@pytest.mark.one_in(4, of="tensorflow")
def test_transforms_in_a_compiled_step(name, backend):
    def write(w, optimizer):
        rows = np.ones(4)

        def energy(w, x):
            return tg.sum(tg.tanh(x @ w) ** 2)

        def step(x):
            if name == "grad":
                loss = tg.sum(tg.grad(energy, 1)(w, x) ** 2)
            elif name == "value_and_grad":
                value, g = tg.value_and_grad(lambda p: energy(p["w"], x))({"w": w})
                loss = value + tg.sum(g["w"] ** 2)
            elif name == "hvp":
                loss = tg.sum(tg.hvp(lambda w: energy(w, x), (w,), (w,)))
            elif name == "checkpoint":
                loss = tg.checkpoint(energy)(w, x)
            else:
                loss = tg.sum(tg.hessian(lambda v: tg.sum((w @ v) ** 3))(x[0, :1] + rows))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        return step

    compared(write, backend)


def test_transforms_take_the_floats_of_a_compiled_step(backend):
    f = lambda x: x**3  # noqa: E731
    step = tg.compile(lambda x: (tg.grad(f)(x), tg.grad(tg.grad(f))(x), tg.jvp(f, (x,), (1.0,))))
    for x in (2.0, 3.0, -1.0, 0.5):
        slope, second, (value, tangent) = step(x)
        got = [float(v) for v in (slope, second, value, tangent)]
        assert got == pytest.approx([3 * x**2, 6 * x, x**3, 3 * x**2], rel=1e-12)
