"""`tg.cond` and `tg.switch` against Python's `if`."""

from __future__ import annotations

import numpy as np
import pytest

import tapegraph as tg
from tests.loops.in_python import chosen
from tests.same_bits import same_bits

rng = np.random.default_rng(8)
W = rng.normal(size=(3, 3))
T = rng.normal(size=(3, 3))


@pytest.fixture(autouse=True)
def native():
    with tg.use_backend("native"):
        yield


def loss(cond, w, pred):
    outs = cond(
        pred,
        lambda w: (tg.tanh(w) @ w, {"a": w[0]}),
        lambda w: (w * w * w + T, {"a": w[0] * 0.5 * w[1]}),
        w,
    )
    return tg.sum(outs[0] ** 2) + tg.sum(outs[1]["a"])


def compiled(f):
    step = tg.compile(f, verify_every=None)
    return [step(W) for _ in range(3)][-1]


DERIVATIVES = {
    "grad": lambda f: tg.grad(f)(W),
    "jvp": lambda f: tg.jvp(f, (W,), (T,))[1],
    "hessian": lambda f: tg.hessian(f)(W),
    "hvp": lambda f: tg.hvp(f, (W,), (T,)),
    "grad of grad": lambda f: tg.grad(lambda w: tg.sum(tg.grad(f)(w) * T))(W),
    "vmap of grad": lambda f: tg.vmap(tg.grad(f))(np.stack([W, T])),
    "compiled": lambda f: compiled(tg.grad(f)),
    "checkpoint": lambda f: tg.grad(tg.checkpoint(f))(W),
}


@pytest.mark.parametrize("pred", [True, False])
@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives_are_those_of_the_branch_that_runs(name, pred):
    derivative = DERIVATIVES[name]
    found = derivative(lambda w: loss(tg.cond, w, pred))
    wanted = derivative(lambda w: loss(chosen, w, pred))
    np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("pred", [True, False])
def test_bits_are_those_of_the_branch_that_runs(pred):
    found = []
    for cond in (tg.cond, chosen):
        w = tg.param(W)
        loss(cond, w, pred).backward()
        found.append(w.grad)
    same_bits(*found)


def test_one_branch_runs():
    gone = lambda x: tg.cond(x > 0, lambda x: tg.log(x), lambda x: x * x, x)  # noqa: E731
    assert tg.grad(gone)(0.0) == 0.0
    assert tg.grad(gone)(4.0) == 0.25
    step = tg.compile(lambda x: tg.value_and_grad(gone)(x))
    points = [-1.0, 0.0, 2.0, 3.0]
    found = [[x.item() for x in step(np.array(x))] for x in points]
    assert found == [[1.0, -2.0], [0.0, 0.0], [np.log(2.0), 0.5], [np.log(3.0), 1 / 3]]
    assert step.traces == 1


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_examples_with_a_choice_of_their_own():
    f = lambda x: tg.cond(x > 0, lambda x: tg.log(x), lambda x: x * x, x)  # noqa: E731
    xs = np.array([-1.0, 0.0, 2.0, 4.0])
    same_bits(tg.vmap(f)(xs), np.array([1.0, 0.0, np.log(2.0), np.log(4.0)]))
    same_bits(tg.vmap(tg.grad(f))(xs), np.array([-2.0, 0.0, 0.5, 0.25]))
    scaled = [lambda x: x, lambda x: 2 * x, lambda x: 3 * x]
    found = tg.vmap(lambda i: tg.switch(i, scaled, 1.5))(np.array([-1, 0, 1, 2, 5]))
    same_bits(found, np.array([1.5, 1.5, 3.0, 4.5, 4.5]))


def test_branches_read_from_outside():
    w, v = tg.param(2.0), tg.param(3.0)
    y = tg.cond(w > 1.0, lambda: w * w, lambda: v)
    y.backward()
    assert (y.item(), w.grad.item(), v.grad.item()) == (4.0, 4.0, 0.0)


def test_a_choice_in_a_loop():
    def f(c, w):
        body = lambda c, x: (tg.cond(c > 0, lambda c: c * w * x, lambda c: c + w, c), None)  # noqa: E731
        return tg.scan(body, c, np.arange(1.0, 5.0))[0]

    # 24 (w - 1) w^3 at 2
    assert tg.grad(lambda w: f(-1.0, w))(2.0) == 480.0
    assert tg.hessian(lambda w: f(-1.0, w))(2.0) == 864.0


def test_branches_that_are_unlike_are_refused():
    x = np.ones(2)
    with pytest.raises(TypeError, match=r"shape \(2,\).*shape \(\)|shape \(\).*shape \(2,\)"):
        tg.cond(True, lambda x: x, lambda x: tg.sum(x), x)
    with pytest.raises(TypeError, match="float32"):
        tg.cond(True, lambda x: x, lambda x: x.astype(np.float32), tg.tensor(x))
    with pytest.raises(TypeError, match="structure"):
        tg.cond(True, lambda x: x, lambda x: (x,), x)
    with pytest.raises(ValueError, match=r"tg\.where"):
        tg.cond(x > 0, lambda: 1.0, lambda: 2.0)
    with pytest.raises(TypeError, match="an integer"):
        tg.switch(1.5, [lambda: 1.0])
    with pytest.raises(ValueError, match="no functions"):
        tg.switch(0, [])
