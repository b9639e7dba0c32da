"""`tg.while_loop` against Python's `while`."""

from __future__ import annotations

import numpy as np
import pytest

import tapegraph as tg
from tests.loops import in_python
from tests.same_bits import same_bits

W = np.array([1.3, 1.5])
T = np.array([0.3, -0.2])
POINTS = np.stack([W, T + 2.0, 2.0 * W])


@pytest.fixture(autouse=True)
def native():
    with tg.use_backend("native"):
        yield


def loss(while_loop, w, **options):
    last, _ = while_loop(
        lambda c: tg.sum(c[0]) < 50.0,
        lambda c: (c[0] * w + tg.sin(c[1]), c[1] * 1.1),
        (np.array([1.0, 2.0]), np.array([0.5, 1.0])),
        **options,
    )
    return tg.sum(last * last)


DERIVATIVES = {
    "grad": lambda f: tg.grad(f),
    "jvp": lambda f: lambda w: tg.jvp(f, (w,), (T,))[1],
    "hessian": lambda f: tg.hessian(f),
    "hvp": lambda f: lambda w: tg.hvp(f, (w,), (T,)),
    "grad of grad": lambda f: tg.grad(lambda w: tg.sum(tg.grad(f)(w) * T)),
    "third": lambda f: tg.grad(lambda w: tg.sum(tg.hvp(f, (w,), (T,)) * T)),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives_are_those_of_the_rounds_that_ran(name):
    derivative = DERIVATIVES[name]
    found = derivative(lambda w: loss(tg.while_loop, w))
    wanted = derivative(lambda w: loss(in_python.while_loop, w))
    np.testing.assert_allclose(found(W), wanted(W), rtol=1e-12)
    each = np.stack([np.asarray(wanted(point)) for point in POINTS])
    np.testing.assert_allclose(tg.vmap(found)(POINTS), each, rtol=1e-12)
    step = tg.compile(found)
    for point in (W, W, W, *POINTS, W):  # other numbers, and another number of rounds
        np.testing.assert_allclose(step(point), wanted(point), rtol=1e-12)
    assert step.traces == 1


def test_bits_are_those_of_the_loop():
    found = []
    for while_loop in (tg.while_loop, in_python.while_loop):
        w = tg.param(W)
        loss(while_loop, w).backward()
        found.append(w.grad)
    same_bits(*found)


SECOND = {
    "grad": lambda f: tg.grad(lambda w: tg.sum(tg.grad(f)(w) * T)),
    "jvp": lambda f: lambda w: tg.jvp(tg.grad(lambda w: tg.sum(tg.grad(f)(w) * T)), (w,), (T,))[1],
    "vmap": lambda f: lambda w: tg.sum(tg.vmap(SECOND["grad"](f))(tg.stack([w, w * 1.1])), axis=0),
    "in a scan": lambda f: (
        lambda w: tg.scan(lambda c, _: (c + SECOND["grad"](f)(c * 0.01 + w), None), w, None, 2)[0]
    ),
    "grad of a scan": lambda f: tg.grad(
        lambda w: tg.sum(tg.scan(lambda c, _: (c + tg.grad(f)(w) * 0.01, None), w, None, 2)[0])
    ),
}


@pytest.mark.parametrize("name", SECOND)
@pytest.mark.parametrize("options", [{}, {"max_steps": 30}], ids=str)
@pytest.mark.one_in(4)
def test_second_order_in_a_compiled_step_and_in_a_loop(name, options):
    step = tg.compile(SECOND[name](lambda w: loss(tg.while_loop, w, **options)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tg, "scan", in_python.scan)
        patch.setattr(tg, "vmap", lambda f: lambda ws: tg.stack([f(w) for w in ws]))
        second = SECOND[name](lambda w: loss(in_python.while_loop, w))
        points = (W, W, W, POINTS[1])
        wanted = [np.asarray(getattr(x, "data", x)) for x in map(second, points)]
    for point, want in zip(points, wanted, strict=True):
        found = step(point)
        np.testing.assert_allclose(getattr(found, "data", found), want, rtol=1e-11)
    assert step.traces == 1


def test_it_ends_after_the_most_steps():
    assert tg.while_loop(lambda c: c < 100.0, lambda c: c * 2.0, 1.0, max_steps=3).item() == 8.0
    assert tg.while_loop(lambda c: c < 100.0, lambda c: c * 2.0, 200.0).item() == 200.0
    assert tg.grad(lambda c: tg.while_loop(lambda c: c < 1.0, lambda c: c * 2.0, c))(5.0) == 1.0


def test_a_loop_in_a_loop():
    def collatz(while_loop, n):
        def step(c):
            n, count = c
            odd = n % 2 == 1
            return tg.where(odd, 3 * n + 1, n // 2), count + 1

        return while_loop(lambda c: c[0] != 1, step, (n, 0))[1]

    xs = np.array([1, 7, 27])
    _, counts = tg.scan(lambda c, n: (c, collatz(tg.while_loop, n)), 0.0, xs)
    assert counts.numpy().tolist() == [0, 16, 111]
    assert tg.vmap(lambda n: collatz(tg.while_loop, n))(xs).tolist() == [0, 16, 111]


def test_what_it_refuses():
    with pytest.raises(TypeError, match="float64.*int64"):
        tg.while_loop(lambda c: c < 1, lambda c: c + 0.5, np.zeros((), np.int64))
    with pytest.raises(ValueError, match="one bool"):
        tg.while_loop(lambda c: c < 1, lambda c: c, np.zeros(2))
    with pytest.raises(TypeError, match=r"^while_loop: received a body of .* def body\(carry\)"):
        tg.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, s), (0, 1.0))
    with pytest.raises(ValueError, match="max_steps=-1"):
        tg.while_loop(lambda c: c < 1, lambda c: c, 0.0, max_steps=-1)
