"""Steps on complex numbers: compiled natively they are the eager ones to the bit."""

from __future__ import annotations

import numpy as np
import pytest

import tapegraph as tg
from tests.cases.complex_numbers import COMPLEX_CASES
from tests.quick import a_few_each, check_each, each_operation, thinned

A = np.random.default_rng(0).normal(size=(2, 4, 3)) @ np.eye(3)
A = A[0] + 1j * A[1]
B = A @ np.array([1.0 - 2.0j, 0.5j, -1.0])
START = np.array([0.3 + 0.1j, -0.2j, 1.0])


def stepped(case, compiles):
    """The losses and gradients of the last of four calls, which replays where it compiles."""
    params = [tg.param(x) for x in case.inputs]

    def step():
        y = case.run(*params)
        loss = tg.sum(tg.abs(y) ** 2) + tg.sum(np.real(y))
        for p in params:
            p.grad = None
        loss.backward()
        return loss, [p.grad for p in params]

    run = tg.compile(step, verify_every=None) if compiles else step
    for _ in range(4):
        loss, grads = run()
    return [np.asarray(loss.detach().data)] + [np.asarray(g) for g in grads if g is not None]


# Without lstsq, whose rank is a number, which raises (tests/recording/test_capture.py).
STEPS = [case for case in COMPLEX_CASES if case.op != "lstsq"]


@each_operation(STEPS, every=3)
@pytest.mark.one_in(4)
def test_a_compiled_case_is_the_eager_one_to_the_bit(op, thorough):
    cases = STEPS if thorough else a_few_each(STEPS, most=2)
    check_each(op, cases, compiled_is_the_eager_one)


def compiled_is_the_eager_one(case):
    with tg.use_backend("native"):
        want, got = stepped(case, compiles=False), stepped(case, compiles=True)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


OPTIMIZERS = {
    "SGD": lambda p: tg.SGD(p, lr=0.05),
    "momentum": lambda p: tg.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.1),
    "Adam": lambda p: tg.Adam(p, lr=0.1),
    "AMSGrad": lambda p: tg.Adam(p, lr=0.1, amsgrad=True),
    "AdamW": lambda p: tg.AdamW(p, lr=0.1, weight_decay=0.05),
    "RMSprop": lambda p: tg.RMSprop(p, lr=0.05),
    "Adagrad": lambda p: tg.Adagrad(p, lr=0.1),
}


def trained(make, compiles):
    z = tg.param(START)
    optimizer = make([z])

    def step():
        optimizer.zero_grad()
        loss = tg.sum(tg.abs(A @ z - B) ** 2)
        loss.backward()
        tg.clip_grad_norm([z], 50.0)
        optimizer.step()
        return loss

    run = tg.compile(step) if compiles else step
    losses = [run().item() for _ in range(8)]
    assert losses[-1] < losses[0]
    return z.numpy()


@pytest.mark.parametrize("name", thinned(OPTIMIZERS, 2))
@pytest.mark.one_in(6, of="tensorflow")
def test_optimizers_move_both_parts_as_numbers_of_their_own(name, backend):
    """A rule gives what it gives of the parts, two real parameters, and compiled the same."""
    make = OPTIMIZERS[name]
    want = trained(make, compiles=False)
    re, im = tg.param(START.real), tg.param(START.imag)
    optimizer = make([re, im])
    for _ in range(8):
        optimizer.zero_grad()
        tg.sum(tg.abs(A @ (re + 1j * im) - B) ** 2).backward()
        tg.clip_grad_norm([re, im], 50.0)
        optimizer.step()
    np.testing.assert_allclose(want, re.data + 1j * im.data, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(trained(make, compiles=True), want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_are_pytorchs(name):
    torch = pytest.importorskip("torch")
    kind = {"momentum": "SGD", "AMSGrad": "Adam"}.get(name, name)
    options = {
        "SGD": {"lr": 0.05},
        "momentum": {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.1},
        "Adam": {"lr": 0.1},
        "AMSGrad": {"lr": 0.1, "amsgrad": True},
        "AdamW": {"lr": 0.1, "weight_decay": 0.05},
        "RMSprop": {"lr": 0.05},
        "Adagrad": {"lr": 0.1},
    }[name]
    z = torch.tensor(START, requires_grad=True)
    theirs = getattr(torch.optim, kind)([z], **options)
    for _ in range(8):
        theirs.zero_grad()
        (torch.tensor(A) @ z - torch.tensor(B)).abs().pow(2).sum().backward()
        torch.nn.utils.clip_grad_norm_([z], 50.0)
        theirs.step()
    got = trained(OPTIMIZERS[name], compiles=False)
    np.testing.assert_allclose(got, z.detach().numpy(), rtol=1e-9, atol=1e-12)


def test_complex_arguments_and_state_of_a_compiled_step(backend):
    total = tg.tensor(np.zeros(3, np.complex128))

    @tg.compile
    def step(z, scale):
        total.assign(total + z * scale)
        return tg.grad(lambda z: tg.sum(tg.abs(np.fft.fft(z)) ** 2))(z)

    for k in range(5):
        z = START * (k + 1j)
        np.testing.assert_allclose(step(z, 0.5j), 6.0 * z, rtol=1e-12)
    want = 0.5j * START * sum(k + 1j for k in range(5))
    np.testing.assert_allclose(total.data, want, rtol=1e-12)


def test_a_complex_number_in_the_closure_is_guarded():
    turn = {"by": 1.0 + 1.0j}

    @tg.compile
    def step(z):
        return z * turn["by"]

    for by in (1.0 + 1.0j, 1.0 + 1.0j, 2.0j, 2.0j, complex(0.0, -0.0)):
        turn["by"] = by
        np.testing.assert_array_equal(step(START).data, START * by)


def test_clipping_elements_is_refused():
    z = tg.param(START)
    tg.sum(tg.abs(z) ** 2).backward()
    with pytest.raises(TypeError, match=r"clip_grad_value: .*complex.*clip_grad_norm"):
        tg.clip_grad_value([z], 1.0)
    np.testing.assert_allclose(z.grad, 2.0 * START)
