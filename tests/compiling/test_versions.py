"""A leaf that is assigned to inside a step is its new value from then on, whoever reads it."""

from __future__ import annotations

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.optim import schedules
from tests.compiling.beside import beside

X = [(np.array([1.0, 2.0, -0.5]) * (1.0 + 0.1 * i),) for i in range(5)]
X.insert(0, X[0])  # both recordings are made of one call: comparing them finds nothing


def assigned(w, x):
    w.assign(x)


def by_data(w, x):
    w.data = x


def in_place(w, x):
    with tg.no_grad():
        w -= w - x


def stepped(w, x):
    w.grad = w.detach() - x
    tg.SGD([w], lr=1.0).step()


UPDATES = {f.__name__: f for f in (assigned, by_data, in_place, stepped)}


def by_gradients(f, w):
    return tg.gradients(f(w), [w], create_graph=True)[0]


def by_grad(f, w):
    return tg.grad(f)(w)


def by_value_and_grad(f, w):
    return tg.value_and_grad(f)(w)[1]


def by_checkpoint(f, w):
    return tg.grad(tg.checkpoint(f))(w)


DERIVATIVES = (by_gradients, by_grad, by_value_and_grad, by_checkpoint)


@pytest.mark.parametrize("derivative", DERIVATIVES)
@pytest.mark.parametrize("update", UPDATES.values())
@pytest.mark.one_in(10, of="tensorflow")
def test_derivatives_of_derivatives_after_an_update(update, derivative, engine):
    w = tg.param([5.0, 6.0, 7.0])

    @tg.compile
    def step(x):
        update(w, x)
        w.grad = None
        slope = derivative(lambda v: tg.sum(v**3), w)
        tg.sum(slope * slope).backward()
        return slope, w.grad

    for (x,) in X:
        slope, grad = step(x)
        np.testing.assert_allclose(slope.data, 3 * x**2, rtol=1e-12)
        np.testing.assert_allclose(grad.data, 36 * x**3, rtol=1e-12)
        np.testing.assert_allclose(w.grad, 36 * x**3, rtol=1e-12)


def training(body, lr=0.1):
    """Make the maker of a step ``body(parameters, optimizer, x)``."""

    def make():
        leaves = [tg.param([0.5, -1.0, 2.0]), tg.param([0.3, 0.1, 1.5])]
        optimizer = tg.SGD(leaves, lr=lr, momentum=0.5)
        return lambda x: body(leaves, optimizer, x), [*leaves, optimizer]

    return make


WORKS = {}


def works(body):
    WORKS[body.__name__.replace("_", " ")] = body
    return body


@works
def a_gradient_penalty_and_two_updates(ps, optimizer, x):
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = tg.sum(tg.tanh(ps[1] * (ps[0] * x) ** 2))
        slopes = tg.gradients(loss, ps, create_graph=True)
        loss = loss + sum(tg.sum((slope - 1.0) ** 2) for slope in slopes)
        loss.backward()
        optimizer.step()
        losses.append(loss)
    return losses


@works
def a_hessian_vector_product_between_two_updates(ps, optimizer, x):
    f = lambda v: tg.sum(tg.exp(v * x) * ps[1] ** 2)  # noqa: E731
    for _ in range(2):
        optimizer.zero_grad()
        tg.sum(tg.hvp(f, (ps[0],), (x,))[0] ** 2).backward()
        optimizer.step()
    return tg.hvp(f, (ps[0],), (x,))


@works
def one_value_for_two_parameters(ps, optimizer, x):
    value = (x * 2.0 + ps[0]).detach()
    for p in ps:
        p.assign(value)
    optimizer.zero_grad()
    tg.sum(ps[0] ** 2 * ps[1] * value).backward()
    return [p.grad for p in ps]


@works
def a_constant_that_another_one_was(ps, optimizer, x):
    a, b = tg.tensor(np.ones(3)), tg.tensor(np.zeros(3))
    b.assign(x)
    a.assign(b)
    b.assign(b * 2.0)
    return a * ps[0].detach(), b


@works
def a_constant_made_inside_that_becomes_plain_again(ps, optimizer, x):
    c = tg.tensor(np.zeros(3))
    c.assign(x * 2.0)
    first = c + 1.0
    c.assign(np.array([1.0, 2.0, 3.0]))
    return first, c, x * (2.0 if float(np.sum(c)) > 5.0 else 3.0), c.data * 2.0


@works
def a_parameter_of_an_argument_trained_inside(ps, optimizer, x):
    inner = tg.param(x)
    own = tg.SGD([inner], lr=schedules.exponential(0.1, 0.5), momentum=0.9)
    for _ in range(3):
        own.zero_grad()
        tg.sum((inner - ps[0].detach()) ** 4).backward()
        own.step()
    return inner, inner.grad


@works
def a_constant_that_comes_to_need_a_gradient(ps, optimizer, x):
    c = tg.tensor(np.zeros(3))
    c.assign(x)
    c.requires_grad_()
    (slope,) = tg.gradients(tg.sum(c**3 * ps[0]), c, create_graph=True)
    tg.sum(slope**2).backward()
    return c.grad, ps[0].grad


@works
def written_elements_of_a_constant_made_inside(ps, optimizer, x):
    buffer = tg.tensor(np.zeros(3))
    before, numbers = buffer + x, buffer.data
    buffer.data[...] = 1.0
    between = buffer * x
    numbers[0] = 5.0
    numbers += 1.0
    return before, between, buffer, buffer * ps[0].detach()


@pytest.mark.parametrize("body", WORKS.values(), ids=WORKS.keys())
@pytest.mark.one_in(3, of="tensorflow")
def test_it_gives_what_it_gives_eagerly(body, engine):
    beside(training(body), X, engine)


def test_writing_into_a_constant_that_was_left_behind_reaches_no_later_call(engine):
    held = []
    keep = held.append  # a list that grows would be another trace at each call

    @tg.compile
    def step(x):
        c = tg.tensor(np.ones(3))
        keep(c)
        return c * x

    for i, (x,) in enumerate(X):
        np.testing.assert_array_equal(step(x).data, x)
        held[min(i, 1)].data[...] = 7.0
    assert step.traces == 1


# ------------------------------------------------------------------ schedules


@pytest.mark.one_in(2, of="tensorflow")
@pytest.mark.parametrize("count", [1, 2, 3])
def test_each_of_several_steps_in_one_call_has_a_rate_of_its_own(count, engine):
    rates = [schedules.cosine(0.5, 7), schedules.exponential(0.3, 0.8)]
    ps = [tg.param(np.zeros(3)) for _ in rates]
    optimizer = tg.SGD([{"params": [p], "lr": lr} for p, lr in zip(ps, rates, strict=True)], lr=9.0)

    @tg.compile
    def step(x):
        for _ in range(count):
            optimizer.zero_grad()
            tg.sum((ps[0] + ps[1]) * x).backward()
            optimizer.step()

    left = [np.zeros(3) for _ in rates]
    for i, (x,) in enumerate(X):
        step(x)
        for p, rate, want in zip(ps, rates, left, strict=True):
            for k in range(count):
                want -= rate(count * i + k) * x
            np.testing.assert_allclose(p.data, want, rtol=1e-12)
    optimizer.zero_grad()
    optimizer.step()  # an eager one counts too
    assert optimizer.steps == count * len(X) + 1


def test_each_of_several_steps_of_values_has_a_rate_of_its_own():
    rate = schedules.exponential(0.5, 0.5)
    v = tg.Value(1.0)
    optimizer = tg.SGD([v], lr=rate)

    @tg.compile
    def step(x):
        for _ in range(2):
            v.grad = 0.0
            (v * x).backward()
            optimizer.step()

    want = 1.0
    for i in range(5):
        step(2.0)
        want -= 2.0 * rate(2 * i)
        want -= 2.0 * rate(2 * i + 1)
        assert v.data == want


# ------------------------------------------------------------------ what raises


@pytest.mark.parametrize("read", [float, bool, lambda c: c.item(), lambda c: c.data, np.asarray])
def test_numbers_of_a_constant_that_was_assigned_stay_in_the_program(read, engine):
    w = tg.param(2.0)

    @tg.compile
    def step(x):
        c = tg.tensor(0.0)
        c.assign((w * x).detach())
        return read(c)

    with pytest.raises(tg.ConcretizationError, match="the numbers of constant"):
        step(np.array(1.0))


def test_elements_of_state_are_not_written_inside(engine):
    state = tg.tensor(np.zeros(3))
    numbers = state.data

    @tg.compile
    def step(x):
        numbers[0] = 1.0
        return x * state

    with pytest.raises(tg.ConcretizationError, match=r"data: .*Write tensor.assign"):
        step(X[0][0])
    np.testing.assert_array_equal(state.data, 0.0)


@pytest.mark.parametrize("allow_unused", [False, True])
def test_a_leaf_that_was_changed_is_not_called_unused(allow_unused, engine):
    w = tg.param([1.0, 2.0, 3.0])

    @tg.compile
    def step(x):
        y = tg.sum(w**2 * x)
        w.assign(x)
        return tg.gradients(y, w, allow_unused=allow_unused)

    with pytest.raises(RuntimeError, match="was changed after"):
        step(X[0][0])
    np.testing.assert_array_equal(w.data, [1.0, 2.0, 3.0])
