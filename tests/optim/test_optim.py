"""`SGD`: what one step does to every kind of parameter."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import tapegraph as tg

START = np.array([[1.0, -2.0], [3.0, 4.0]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_step_is_p_minus_lr_times_grad(dtype):
    x = tg.param(START, dtype=dtype)
    (x * x * x).sum().backward()
    tg.SGD([x], lr=0.25).step()
    assert x.dtype == dtype
    np.testing.assert_array_equal(x.data, (START - 0.25 * 3.0 * START**2).astype(dtype))


def test_quadratic_descends_by_its_closed_form(made):
    x = tg.param(START)
    optimizer = tg.SGD([x], lr=0.125)

    @made
    def step():
        optimizer.zero_grad()
        (x * x).sum().backward()
        optimizer.step()

    for _ in range(20):
        step()
    np.testing.assert_array_equal(x.data, START * 0.75**20)


def test_many_parameters_each_by_its_own_gradient():
    a, b = tg.param(1.0), tg.param([2.0, 3.0])
    optimizer = tg.SGD(iter([a, b]), lr=0.5)
    (a * b).sum().backward()
    optimizer.step()
    assert optimizer.params == [a, b]
    assert a.item() == 1.0 - 0.5 * 5.0
    np.testing.assert_array_equal(b.data, [1.5, 2.5])


def test_scalar_values_are_updated_too():
    v, x = tg.Value(2.0), tg.param(3.0)
    optimizer = tg.SGD([v, x], lr=0.25)
    (v * v).backward()
    (x * x).backward()
    optimizer.step()
    assert (v.data, x.item()) == (1.0, 1.5)
    optimizer.zero_grad()
    assert (v.grad, x.grad) == (0.0, 0.0)


def test_learning_rate_can_be_scheduled(made):
    x = tg.param(0.0)
    optimizer = tg.SGD([x], lr=1.0)

    @made
    def step():
        optimizer.zero_grad()
        (x * 1.0).backward()
        optimizer.step()

    seen = []
    for rate in (1.0, 0.5, np.float32(0.25), 0):
        optimizer.lr = rate
        step()
        seen.append(x.item())
    assert seen == [-1.0, -1.5, -1.75, -1.75]


def test_parameter_without_a_gradient_is_left_alone():
    used, unused, zeroed = tg.param(1.0), tg.param(2.0), tg.param(3.0)
    (used + zeroed).backward()
    zeroed.zero_grad()
    tg.SGD([used, unused, zeroed], lr=0.5).step()
    assert (used.item(), unused.item(), zeroed.item()) == (0.5, 2.0, 3.0)
    assert unused.grad is None


def test_step_keeps_the_gradient():
    x = tg.param(1.0)
    (x * 2.0).backward()
    optimizer = tg.SGD([x], lr=0.25)
    optimizer.step()
    optimizer.step()
    assert x.item() == 0.0
    assert x.grad == 2.0


@pytest.mark.parametrize("hold", [lambda x: x.data, lambda x: x.numpy(), lambda x: x.data[0]])
def test_arrays_handed_out_before_a_step_keep_their_numbers(hold):
    x = tg.param(START)
    held = hold(x)
    copy = np.array(held)
    x.sum().backward()
    tg.SGD([x], lr=1.0).step()
    np.testing.assert_array_equal(held, copy)
    np.testing.assert_array_equal(x.data, START - 1.0)


def test_results_computed_before_a_step_keep_their_numbers():
    x = tg.param(START)
    view, product = x.T, x * 1.0
    x.sum().backward()
    tg.SGD([x], lr=1.0).step()
    np.testing.assert_array_equal(view.data, START.T)
    np.testing.assert_array_equal(product.data, START)


def test_parameters_keep_their_identity():
    x = tg.param(START, name="w")
    x.sum().backward()
    tg.SGD([x], lr=1.0).step()
    assert (x.op, x.name, x.requires_grad) == ("param", "w", True)


@pytest.mark.parametrize("lr", [np.inf, -np.inf, np.nan, -1.0, "a", None])
def test_rate_that_is_no_finite_number_of_0_or_more_is_refused(lr):
    x = tg.param(1.0)
    kind = TypeError if lr in ("a", None) else ValueError
    with pytest.raises(kind, match="SGD: received"):
        tg.SGD([x], lr=lr)
    optimizer = tg.SGD([x], lr=0.5)
    with pytest.raises(kind, match="SGD: received"):
        optimizer.lr = lr
    assert optimizer.lr == 0.5


def test_values_that_are_results_are_refused():
    with pytest.raises(TypeError, match="SGD"):
        tg.SGD([tg.Value(1.0) * 2.0], lr=0.1)


@pytest.mark.parametrize("make", [tg.SGD, tg.Adam, tg.AdamW, tg.RMSprop, tg.Adagrad, tg.Lion])
@pytest.mark.parametrize("none", [[], (), {}, [{"params": []}], "read", "frozen model"])
def test_no_parameters_are_refused(make, none):
    if none == "read":
        none = iter([tg.param(1.0)])
        make(none, lr=0.1)
    elif none == "frozen model":
        none = {"table": np.ones(3), "mean": tg.tensor(0.0)}
    with pytest.raises((ValueError, TypeError), match=make.__name__) as caught:
        make(none, lr=0.1)
    if not isinstance(none, dict) or not none:
        assert "received no parameters" in str(caught.value) and "once it has been read" in str(
            caught.value
        )


@pytest.mark.parametrize("make", [tg.SGD, tg.Adam, tg.AdamW, tg.RMSprop, tg.Adagrad, tg.Lion])
def test_other_options_are_refused_and_named(make):
    with pytest.raises(TypeError, match=rf"{make.__name__}: .*'learning_rate'\. Did you mean lr="):
        make([tg.param(1.0)], lr=0.1, learning_rate=0.1)
    with pytest.raises(TypeError, match=rf"{make.__name__}: .* argument 'lrate'\. \(at"):
        make([tg.param(1.0)], lr=0.1, lrate=0.1)


def test_a_rate_in_the_place_of_the_parameters_is_told():
    with pytest.raises(TypeError, match=r"Adam: received float 0\.001; .*Write Adam\(params, lr=0"):
        tg.Adam(0.001)


def test_an_optimizer_of_ones_own_may_have_the_option():
    class Named(tg.SGD):
        def __init__(self, params, learning_rate):
            super().__init__(params, lr=learning_rate)

    assert Named([tg.param(1.0)], learning_rate=0.5).lr == 0.5


@pytest.mark.parametrize("compiles", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda ps: tg.SGD(ps, lr=0.01, momentum=0.9),
        lambda ps: tg.AdamW(ps, lr=0.01, weight_decay=0.1),
    ],
)
def test_a_parameter_that_is_frozen_later_stays_and_goes_on_when_it_is_not(make, compiles):
    """Neither momentum nor weight decay moves it, though its gradient was zeroed and not None."""
    a, b = tg.param(np.ones(3)), tg.param(np.ones(3))
    optimizer = make([a, b])

    def step():
        optimizer.zero_grad()
        tg.sum((a - 2.0 * b) ** 2).backward()
        optimizer.step()

    step = tg.compile(step) if compiles else step
    for frozen in (False, True, False):
        a.requires_grad_(not frozen)
        before = a.numpy(), b.numpy()
        for _ in range(4):
            step()
        assert np.array_equal(a.data, before[0]) == frozen
        assert not np.array_equal(b.data, before[1])


@pytest.mark.one_in(2)
@pytest.mark.parametrize("compiles", [False, True])
@pytest.mark.parametrize(
    "make", [tg.SGD, tg.Adagrad, tg.RMSprop, tg.Lion, partial(tg.SGD, momentum=0.5)]
)
def test_a_frozen_parameter_is_passed_by_whatever_gradient_it_has_left(make, compiles):
    dense, table = tg.param(np.ones(2)), tg.param(np.ones((3, 2)))
    other = tg.param(np.ones(2))
    optimizer = make([dense, table, other], lr=0.1)

    def step(rows):
        tg.sum(dense * other * tg.gather(table, rows)).backward()  # gradients add up
        optimizer.step()

    step = tg.compile(step) if compiles else step
    for frozen in (False, True, False):
        for leaf in (dense, table):
            leaf.requires_grad_(not frozen)
        before = [p.numpy() for p in (dense, table, other)]
        for _ in range(3):
            step(np.array([0, 2]))
        moved = [np.any(p.data != x) for p, x in zip((dense, table, other), before, strict=True)]
        assert moved == [not frozen, not frozen, True]


@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_parameter_set_to_none_stays_until_a_loss_reaches_it(made, set_to_none):
    """By hand: gradients of 1, then none; momentum of 1/2 goes on with zeros alone."""
    a, b, v = tg.param(1.0), tg.param(1.0), tg.Value(1.0)
    optimizer = tg.SGD([a, b, v], lr=0.5, momentum=0.5)

    @made
    def step(uses_b):
        optimizer.zero_grad(set_to_none=set_to_none)
        (a + b if uses_b else a * 1.0).backward()
        optimizer.step()

    seen = []
    for uses_b in (True,) * 3 + (False,) * 3:
        step(uses_b)
        seen.append(b.item())
    assert seen[:3] == [0.5, -0.25, -1.125]  # moments of 1, 1.5 and 1.75
    assert seen[-1] == (-1.125 if set_to_none else -1.125 - 0.5 * (0.875 + 0.4375 + 0.21875))
    assert (b.grad is None) == set_to_none
    a.zero_grad(set_to_none)
    assert (a.grad is None) == set_to_none and v.data == 1.0


@pytest.mark.parametrize("take", [list, dict, lambda model: SimpleNamespace(**model)])
def test_a_parameter_frozen_before_is_taken_and_a_constant_is_told(take):
    words = (
        r"SGD: received Tensor.*It is a constant: call requires_grad_\(\) on it, or leave it out"
    )
    with pytest.raises(TypeError, match=words):
        tg.SGD([tg.tensor([1.0])], lr=0.1)
    w, frozen = tg.param(1.0), tg.param(1.0).requires_grad_(False)
    given = [w, frozen] if take is list else take({"w": w, "frozen": frozen})
    optimizer = tg.SGD(given, lr=0.125, weight_decay=1.0)
    for on, expected in ((False, (0.75, 1.0)), (True, (0.53125, 0.78125))):
        frozen.requires_grad_(on)
        optimizer.zero_grad()
        (w * frozen).backward()
        optimizer.step()
        assert (w.item(), frozen.item()) == expected


def test_it_shows_its_options():
    w, b = tg.param([1.0]), tg.param([2.0])
    assert repr(tg.Adam([w, b], lr=0.01)) == (
        "Adam(2 parameters, lr=0.01, betas=(0.9, 0.999), eps=1e-08, amsgrad=False)"
    )
    groups = [{"params": [w], "weight_decay": 0.5}, {"params": [b], "lr": 0.2}]
    text = repr(tg.SGD(groups, lr=tg.optim.schedules.constant(0.1), momentum=0.9))
    assert text.startswith("SGD(2 parameters, 2 groups, lr=constant") and "momentum=0.9" in text
    assert "weight_decay=0.5" in text

    class Half(tg.Optimizer):
        def update(self, p, g, state, lr):
            return p - 0.5 * g, {}

    assert repr(Half([w], lr=1.0)) == "Half(1 parameter, lr=1.0)"


def test_it_is_shown_in_a_captured_step_and_before_it_is_whole():
    w = tg.param([1.0])
    optimizer = tg.SGD([w], lr=0.1)
    step = tg.compile(lambda x: (x * 2.0, repr(optimizer)))
    assert step(np.ones(1))[1].startswith("SGD(1 parameter, lr=0.1")
    assert repr(object.__new__(tg.SGD)) == "SGD(0 parameters, lr=None)"
