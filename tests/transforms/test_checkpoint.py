"""`checkpoint`: the gradients of the function itself, and less memory."""

from __future__ import annotations

import gc
import tracemalloc

import numpy as np
import pytest

import tapegraph as tg
from tapegraph import autograd

X = np.array([0.3, -0.7, 1.1])


@pytest.fixture(autouse=True)
def native_engine():
    tg.set_backend("native")


def wave(x, w):
    return tg.exp(tg.sin(x * w)) * tg.tanh(x)


def test_gradients_are_those_of_the_function():
    found = []
    for f in (wave, tg.checkpoint(wave)):
        x, w = tg.param(X), tg.param(2.0)
        y = f(x * 1.5, w) + x
        tg.sum(y**2).backward()
        found.append((y.data.copy(), x.grad, w.grad))
    for got, want in zip(found[1], found[0], strict=True):
        np.testing.assert_array_equal(got, want)


def test_what_it_closes_over_has_its_gradient():
    w = tg.param(2.0)
    h = w * 3.0  # a result, on which w's own gradient depends
    x = tg.param(X)
    tg.sum(tg.checkpoint(lambda x: tg.sin(x * h) * w)(x)).backward()
    np.testing.assert_allclose(x.grad, np.cos(X * 6.0) * 12.0, rtol=1e-12)
    np.testing.assert_allclose(
        w.grad, np.sum(np.sin(X * 6.0) + 2.0 * np.cos(X * 6.0) * X * 3.0), rtol=1e-12
    )


def test_structures_of_several_dtypes_go_in_and_come_out():
    def f(p, *, k):
        y = p["a"] * p["b"][0] * k
        return {"y": y, "s": (tg.sum(y), "text", p["b"][0].astype("float32")), "c": tg.tensor(1)}

    found = []
    for g in (f, tg.checkpoint(f)):
        a, b = tg.param(X), tg.param(2.0)
        out = g({"a": a, "b": [b]}, k=3.0)
        assert out["s"][1] == "text" and out["s"][2].dtype == np.float32
        (tg.sum(out["y"] ** 2) + out["s"][0] * out["s"][2]).backward()
        found.append((a.grad, b.grad, out["y"].data.copy()))
    for got, want in zip(*found, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_derivatives_of_any_order():
    w = tg.param(1.5)

    def kept(x):
        return tg.sum(wave(x, w))

    def again(x):
        return tg.sum(tg.checkpoint(wave)(x, w))

    v = np.array([1.0, -2.0, 0.5])
    for transform in (
        tg.grad,
        tg.hessian,
        lambda f: lambda x: tg.hvp(f, (x,), (v,)),
        lambda f: lambda x: tg.jvp(f, (x,), (v,))[1],
        lambda f: tg.grad(lambda x: tg.sum(tg.grad(f)(x) ** 3)),
    ):
        got, want = transform(again)(X), transform(kept)(X)
        np.testing.assert_allclose(got.data, want.data, rtol=1e-11)
        w.grad = None
        tg.sum(got).backward()
        by_again, w.grad = w.grad, None
        tg.sum(want).backward()
        np.testing.assert_allclose(by_again, w.grad, rtol=1e-11)


def test_complex_numbers_beside_real_ones():
    def segment(z, x):
        return z * z * x * 1j, tg.abs(z) * x, tg.exp(1j * x)

    z, x = X * (1.0 - 0.5j) + 0.25j, X

    def loss_by(f):
        def loss(z, x):
            a, b, c = f(z, x)
            return tg.sum(tg.abs(a + b * c) ** 2)

        return loss

    def slope_of_slopes(loss):
        def size(z, x):
            by_z, by_x = tg.grad(loss, argnums=(0, 1))(z, x)
            return tg.sum(tg.abs(by_z) ** 2) + tg.sum(by_x**2)

        return tg.grad(size, argnums=(0, 1))

    plain, kept = loss_by(segment), loss_by(tg.checkpoint(segment))
    for order in (lambda f: tg.grad(f, argnums=(0, 1)), slope_of_slopes):
        for got, want in zip(order(kept)(z, x), order(plain)(z, x), strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-12)


def test_checkpoints_within_checkpoints():
    inner = tg.checkpoint(lambda x: tg.sin(x) * x)
    outer = tg.checkpoint(lambda x: inner(inner(x)) + x)
    x = tg.param(X)
    tg.sum(outer(x)).backward()

    def plain(x):
        return tg.sin(x) * x

    want = tg.grad(lambda x: tg.sum(plain(plain(x)) + x))(X)
    np.testing.assert_allclose(x.grad, want, rtol=1e-12)


def test_it_runs_again_once_a_backward():
    runs = []
    f = tg.checkpoint(lambda x: runs.append(1) or tg.sin(x))
    x = tg.param(X)
    y = f(x)
    assert len(runs) == 1
    y.backward()
    assert len(runs) == 2
    with tg.no_grad():
        assert not f(x).requires_grad
    f(tg.tensor(X))
    assert len(runs) == 4


def test_zeros_are_strong():
    x = tg.param([-1.0, 4.0])
    with np.errstate(invalid="ignore"):
        y = tg.where(x > 0, tg.checkpoint(tg.sqrt)(x), 0.0)
        y.backward()
    np.testing.assert_array_equal(x.grad, [0.0, 0.25])


def test_it_keeps_less():
    def layers(x):
        for _ in range(20):
            x = tg.tanh(x * 1.01)
        return x

    def memory(f):
        x = tg.param(np.ones(50_000))
        gc.collect()
        tracemalloc.start()
        y = x
        for _ in range(4):
            y = f(y)
        kept, _ = tracemalloc.get_traced_memory()
        tg.sum(y).backward()
        tracemalloc.stop()
        return kept, x.grad

    kept, want = memory(layers)
    less, got = memory(tg.checkpoint(layers))
    np.testing.assert_array_equal(got, want)
    assert less < kept / 10


def test_random_numbers_are_drawn_again():
    f = tg.checkpoint(lambda x: tg.dropout(x, 0.5) * x)
    x = tg.param(np.ones(100))
    tg.random.seed(3)
    y = f(x)
    after = tg.random.uniform(size=3)
    y.backward()
    np.testing.assert_array_equal(x.grad, 2.0 * y.data)
    tg.random.seed(3)
    tg.dropout(np.ones(100), 0.5)
    np.testing.assert_array_equal(after, tg.random.uniform(size=3))


def test_other_numbers_the_second_time_are_refused():
    drawn = iter([1.0, 2.0])
    x = tg.param(X)
    y = tg.checkpoint(lambda x: x * next(drawn))(x)
    with pytest.raises(RuntimeError, match="checkpoint: .*other numbers"):
        y.backward()
    assert x.grad is None


def test_other_tensors_the_second_time_are_refused():
    several = [tg.param(2.0), tg.param(2.0)]
    x = tg.param(X)
    y = tg.checkpoint(lambda x: x * several[0])(x)
    several.reverse()
    with pytest.raises(RuntimeError, match="checkpoint: .*other tensors"):
        y.backward()


def test_a_parameter_that_was_changed_is_refused():
    w, x = tg.param(2.0), tg.param(X)
    y = tg.checkpoint(lambda x: x * w)(x)
    w.assign(3.0)
    with pytest.raises(RuntimeError, match="changed after"):
        y.backward()


def test_a_checkpoint_of_a_gradient_of_the_drop_in():
    def f(x):
        return autograd.numpy.sum(x**3)

    inner = autograd.checkpoint(autograd.grad(f))
    x = np.array([1.0, 2.0])
    found = autograd.grad(lambda x: autograd.numpy.sum(inner(x) * x))(x)
    np.testing.assert_array_equal(found, 9.0 * x**2)  # of 3 x^3
    assert autograd.grad(autograd.checkpoint(autograd.grad(lambda x: x**3)))(2.0) == 12.0
    assert tg.grad(tg.checkpoint(tg.grad(lambda x: x**3)))(2.0) == 12.0


def test_a_checkpoint_of_a_constant_ends_the_gradient():
    frozen = tg.checkpoint(lambda x: [x.detach() * 2.0, np.ones(2)])
    assert tg.grad(lambda x: frozen(x)[0] * x)(3.0) == 6.0
    flat = autograd.checkpoint(autograd.grad(lambda x: 5.0 * x))
    assert autograd.grad(lambda x: flat(x) * x)(3.0) == 5.0


def test_a_second_run_whose_results_carry_no_gradient_is_refused():
    calls = []

    def f(x):
        calls.append(x)
        return x * x if len(calls) == 1 else (x * x).detach()

    x = tg.param(3.0)
    y = tg.checkpoint(f)(x)
    with pytest.raises(RuntimeError, match="checkpoint: the function gives other"):
        y.backward()
    assert x.grad is None
