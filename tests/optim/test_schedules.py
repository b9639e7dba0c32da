"""Schedules against closed forms, PyTorch's, and what an optimizer makes of them."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.optim import schedules

STEPS = range(0, 40)

FORMS = {
    "constant": (schedules.constant(0.3), lambda t: 0.3),
    "step": (schedules.step(0.8, 0.1, 7), lambda t: 0.8 * 0.1 ** math.floor(t / 7)),
    "exponential": (schedules.exponential(0.8, 0.9), lambda t: 0.8 * math.exp(t * math.log(0.9))),
    "cosine": (
        schedules.cosine(0.8, 20, final=0.2),
        lambda t: 0.2 + 0.6 * math.cos(math.pi * min(t, 20) / 40) ** 2,
    ),
    "linear": (schedules.linear(0.2, 0.8, 30), lambda t: 0.2 + 0.02 * min(t, 30)),
    "linear down": (schedules.linear(0.8, 0.0, 8), lambda t: max(0.8 - 0.1 * t, 0.0)),
    "warmup": (
        schedules.warmup(10, schedules.cosine(0.8, 20), start=0.1),
        lambda t: 0.1 + 0.07 * t if t < 10 else 0.8 * math.cos(math.pi * min(t - 10, 20) / 40) ** 2,
    ),
    "warmup to a number": (schedules.warmup(4, 0.5), lambda t: 0.5 * min(t / 4, 1.0)),
    "join": (
        schedules.join([0.5, schedules.exponential(1.0, 0.5), lambda t: 0.125 * t], [5, 9]),
        lambda t: 0.5 if t < 5 else 0.5 ** (t - 5) if t < 9 else 0.125 * (t - 9),
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_closed_form(name):
    schedule, form = FORMS[name]
    np.testing.assert_allclose(
        [schedule(t) for t in STEPS], [form(t) for t in STEPS], rtol=1e-13, atol=1e-16
    )


@pytest.mark.parametrize(
    ("name", "mine", "options"),
    [
        ("StepLR", schedules.step(0.8, 0.1, 7), {"step_size": 7, "gamma": 0.1}),
        ("ExponentialLR", schedules.exponential(0.8, 0.9), {"gamma": 0.9}),
        ("CosineAnnealingLR", schedules.cosine(0.8, 40, 0.2), {"T_max": 40, "eta_min": 0.2}),
        (
            "LinearLR",
            schedules.linear(0.4, 0.2, 30),
            {"start_factor": 0.5, "end_factor": 0.25, "total_iters": 30},
        ),
    ],
)
def test_pytorchs(name, mine, options):
    torch = pytest.importorskip("torch")
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.8)
    theirs = getattr(torch.optim.lr_scheduler, name)(optimizer, **options)
    for t in STEPS:
        assert mine(t) == pytest.approx(theirs.get_last_lr()[0], rel=1e-12)
        optimizer.step()
        theirs.step()


def test_the_first_step_has_the_rate_of_step_0(made):
    x = tg.param(0.0)
    optimizer = tg.SGD([x], lr=schedules.join([1.0, 0.25, 0.0], [1, 3]))

    @made
    def step():
        optimizer.zero_grad()
        (x * 1.0).backward()
        optimizer.step()

    seen = []
    for _ in range(5):
        seen.append(optimizer.lr)
        step()
        seen.append(x.item())
    assert seen == [1.0, -1.0, 0.25, -1.25, 0.25, -1.5, 0.0, -1.5, 0.0, -1.5]


def test_a_schedule_may_be_assigned_and_a_number_again():
    x = tg.param(0.0)
    x.grad = 1.0
    optimizer = tg.Adam([x], lr=0.5)
    optimizer.step()
    optimizer.lr = lambda step: 1.0 / (1 + step)
    assert optimizer.lr == 0.5
    optimizer.step()
    assert optimizer.lr == 1.0 / 3.0
    optimizer.lr = 0.125
    assert optimizer.lr == 0.125


def test_a_schedule_that_gives_no_rate_changes_nothing(made):
    x = tg.param(1.0)
    optimizer = tg.Adam([x], lr=lambda step: 0.5 if step < 3 else -1.0)

    @made
    def step():
        optimizer.zero_grad()
        (x * x).backward()
        optimizer.step()

    for _ in range(3):
        step()
    held, grad, state = x.item(), x.grad.copy(), optimizer.state_dict()
    with pytest.raises(ValueError, match=r"Adam: received lr\(3\)=-1.0; expected a number"):
        step()
    assert x.item() == held
    assert optimizer.state_dict() == state
    assert (x.grad == grad) == (made is tg.compile)  # eagerly, `backward` has run by then


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: schedules.constant(-1.0), ValueError, "schedules.constant: received value=-1.0"),
        (lambda: schedules.step("a", 0.5, 2), TypeError, "schedules.step: .*'initial'"),
        (lambda: schedules.step(1.0, 0.5, 0), ValueError, "schedules.step: received every=0"),
        (lambda: schedules.step(1.0, 0.5, 2.5), TypeError, "'every'; expected a whole number"),
        (lambda: schedules.exponential(1.0, np.nan), ValueError, "factor=nan"),
        (lambda: schedules.cosine(1.0, True), ValueError, "steps=True"),
        (lambda: schedules.linear(1.0, np.inf, 3), ValueError, "final=inf"),
        (lambda: schedules.warmup(3, "a"), TypeError, "schedules.warmup"),
        (lambda: schedules.warmup(3, lambda t: np.nan), ValueError, r"lr\(0\)=nan"),
        (lambda: schedules.join([1.0], [3]), ValueError, "1 parts and 1 boundaries"),
        (lambda: schedules.join([1.0, 1.0, 1.0], [5, 5]), ValueError, "boundaries that rise"),
    ],
)
def test_what_is_no_schedule_is_refused(make, kind, message):
    with pytest.raises(kind, match=message):
        make()


@pytest.mark.parametrize("engine", ["native", "tensorflow"])
def test_a_schedule_reads_a_parameter_as_each_step_begins(engine):
    if engine == "tensorflow":
        pytest.importorskip("tensorflow")

    def trained(compiles, scans=False):
        w = tg.param([3.0, -2.0])
        optimizer = tg.SGD([w], lr=lambda step: 0.1 / float(np.abs(w.numpy()).sum()))

        def step(x):
            loss = tg.sum(w * w * x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        step = tg.compile(step) if compiles else step
        xs = np.linspace(0.5, 1.5, 8)
        losses = step.scan(xs).data if scans else [step(x).item() for x in xs]
        return [*losses, *w.numpy()]

    want = np.array([3.0, -2.0])
    for x in np.linspace(0.5, 1.5, 8):
        want = want - 0.1 / np.abs(want).sum() * 2.0 * want * x
    np.testing.assert_allclose(trained(False)[-2:], want, rtol=1e-12)
    with tg.use_backend(engine):
        for scans in (False, True):
            np.testing.assert_allclose(trained(True, scans), trained(False), rtol=1e-9)


def test_a_schedule_reads_no_parameter_that_the_step_has_changed():
    w = tg.param([3.0, -2.0])
    optimizer = tg.SGD([w], lr=lambda step: 0.1 / float(np.abs(w.numpy()).sum()))

    @tg.compile
    def step(x):
        for _ in range(2):
            optimizer.zero_grad()
            tg.sum(w * w * x).backward()
            optimizer.step()

    with pytest.raises(tg.ConcretizationError, match="numpy: received the numbers of param"):
        step(np.ones(2))
    np.testing.assert_array_equal(w.data, [3.0, -2.0])
