"""How many steps each parameter has taken: Adam's numbers follow it, and it is in no variable."""

import copy

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.compiling.compiled import latest

LR, BETA1, BETA2, EPS = 0.01, 0.9, 0.999, 1e-8
ENGINES = ["native", "tensorflow"]


@pytest.fixture(params=["eager", *ENGINES])
def how(request):
    """Give what runs a step."""
    if request.param == "tensorflow":
        pytest.importorskip("tensorflow")
    with tg.use_backend("native" if request.param == "eager" else request.param):
        yield (lambda f: f) if request.param == "eager" else tg.compile


class ByHand:
    """Adam as its paper writes it, each parameter with a count of its own."""

    def __init__(self, p):
        self.p, self.mean, self.square, self.count = np.array(p), 0.0 * p, 0.0 * p, 0

    def step(self, g):
        self.count += 1
        self.mean = BETA1 * self.mean + (1 - BETA1) * g
        self.square = BETA2 * self.square + (1 - BETA2) * g * g
        mean = self.mean / (1 - BETA1**self.count)
        square = self.square / (1 - BETA2**self.count)
        self.p = self.p - LR * mean / (np.sqrt(square) + EPS)


def pair():
    a, b = tg.param([1.0, -2.0], name="a"), tg.param([0.5, 3.0], name="b")
    return (a, b), (ByHand(a.numpy()), ByHand(b.numpy())), tg.Adam([a, b], lr=LR)


def check(params, by_hand):
    for p, expected in zip(params, by_hand, strict=True):
        np.testing.assert_allclose(p.data, expected.p, rtol=1e-9)


def test_a_parameter_counts_the_steps_that_it_has_a_gradient_in(how):
    """As of a generator and a discriminator with one optimizer: no call takes a new trace."""
    (a, b), (hand_a, hand_b), optimizer = pair()

    def both():
        a.grad = b.grad = None
        tg.sum(a * a + b * b * b).backward()
        optimizer.step()

    def one():
        a.grad = b.grad = None
        tg.sum(a * a).backward()
        optimizer.step()

    steps = {both: how(both), one: how(one)}
    for step in [both] * 4 + [both, one, one] * 6 + [one, both] * 4:
        hand_a.step(2 * hand_a.p)
        if step is both:
            hand_b.step(3 * hand_b.p**2)
        steps[step]()
        check((a, b), (hand_a, hand_b))
    for step in steps.values():
        assert getattr(step, "traces", 1) == 1


def test_a_run_of_two_steps_in_one_of_which_a_gradient_is_missing(how):
    (a, b), (hand_a, hand_b), optimizer = pair()

    @how
    def step():
        a.grad = b.grad = None
        tg.sum(a * a + b * b).backward()
        optimizer.step()
        a.grad = b.grad = None
        tg.sum(a * a).backward()
        optimizer.step()

    for _ in range(8):
        hand_a.step(2 * hand_a.p)
        hand_b.step(2 * hand_b.p)
        hand_a.step(2 * hand_a.p)
        step()
        check((a, b), (hand_a, hand_b))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("frozen", [False, True])
def test_scan_counts_on(engine, frozen):
    if engine == "tensorflow":
        pytest.importorskip("tensorflow")
    (a, b), by_hand, optimizer = pair()
    b.requires_grad_(not frozen)

    @tg.compile(verify_every=None)
    def step(x):
        optimizer.zero_grad()
        tg.sum(a * a * x + b * b * x).backward()
        optimizer.step()
        return tg.sum(a)

    xs = np.linspace(1.0, 2.0, 24)
    with tg.use_backend(engine):
        for part in np.split(xs, 3):
            step.scan(part)
    for x in xs:
        for hand in by_hand[: 1 if frozen else 2]:
            hand.step(2 * hand.p * x)
    check((a, b), by_hand)


def test_a_compiled_step_has_no_state_but_means_squares_and_the_count():
    (a, b), _, optimizer = pair()

    @tg.compile
    def step():
        optimizer.zero_grad()
        tg.sum(a * b).backward()
        optimizer.step()

    for _ in range(3):
        step()
    state = [leaf.shape for leaf in latest(step).trace.state.values()]
    assert sorted(state) == [()] + [(2,)] * 6


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.0, 0.9), (0.9, 0.0), (0.5, 0.5)])
@pytest.mark.parametrize("count", [0, 1, 7, 900])
def test_state_goes_in_and_out_as_products_of_the_betas(betas, count):
    """As all versions have written it: each step multiplied two numbers of each parameter."""
    x = tg.param([1.0, 2.0], name="x")
    optimizer = tg.Adam([x], lr=LR, betas=betas)
    held = optimizer.state_dict()
    held["steps"] = count
    for name, beta in zip(("beta1_power", "beta2_power"), betas, strict=True):
        power = np.ones(())
        for _ in range(count):
            power = beta * power
        held["state"]["x"][name] = power
    optimizer.load_state_dict(held)
    again = optimizer.state_dict()["state"]["x"]
    for name, power in held["state"]["x"].items():
        np.testing.assert_allclose(again[name], power, rtol=1e-12)
    x.grad = [1.0, 1.0]
    optimizer.step()
    counted = optimizer.state_dict()["state"]["x"]
    np.testing.assert_allclose(counted["beta1_power"], betas[0] ** (count + 1), rtol=1e-12)


def test_who_missed_steps_has_so_many_less_after_loading():
    (a, b), (hand_a, hand_b), optimizer = pair()
    for both in (True, False, True):
        a.grad, b.grad = 2 * a.data, 2 * b.data if both else None
        optimizer.step()
        hand_a.step(2 * hand_a.p)
        if both:
            hand_b.step(2 * hand_b.p)
    other = tg.Adam([a, b], lr=LR)
    other.load_state_dict(optimizer.state_dict())
    a.grad, b.grad = 2 * a.data, 2 * b.data
    other.step()
    hand_a.step(2 * hand_a.p)
    hand_b.step(2 * hand_b.p)
    check((a, b), (hand_a, hand_b))


def test_a_power_of_another_shape_is_refused():
    _, _, optimizer = pair()
    held = optimizer.state_dict()
    held["state"]["a"]["beta1_power"] = np.ones(2)
    with pytest.raises(ValueError, match="beta1_power"):
        optimizer.load_state_dict(held)


def test_a_copy_counts_on():
    (a, b), _, optimizer = pair()
    a.grad = b.grad = [1.0, 1.0]
    optimizer.step()
    other = copy.deepcopy(optimizer)
    for p in other.params:
        p.grad = [1.0, 1.0]
    a.grad = b.grad = [1.0, 1.0]
    other.step()
    optimizer.step()
    for mine, theirs in zip(optimizer.params, other.params, strict=True):
        np.testing.assert_array_equal(mine.data, theirs.data)
