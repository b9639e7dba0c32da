"""What capturing a step has got wrong elsewhere: here it works as eagerly, or it raises.

None may differ in silence. Every step of `WORKS` is run beside the same one eagerly; every one of
`RAISES` gives its error in the call that is named, and leaves its state as it was.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import gc
import inspect
import itertools
import math
import sys
import threading
import weakref

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.optim import schedules
from tests.compiling.beside import agree, beside, engine_of, run, standing, taken
from tests.quick import thinned

pytestmark = pytest.mark.versions

RNG = np.random.default_rng(0)
X = [(x,) for x in RNG.normal(size=(6, 3))]
X32 = [(x.astype(np.float32),) for (x,) in X]
SCALES = [(x.astype(np.float32), 0.3 * i) for i, (x,) in enumerate(X, 1)]
Pair = collections.namedtuple("Pair", "first second")


def momentum(params):
    return tg.SGD(params, lr=0.1, momentum=0.9, weight_decay=0.01)


def training(body, *, params=1, optimizer=momentum, dtype=np.float64):
    """Make the maker of a step ``body(params, optimizer, *arguments)``."""

    def make():
        leaves = [tg.param(np.array([1.0, 2.0, 3.0], dtype) + i) for i in range(params)]
        with_slots = optimizer(leaves)
        held = with_slots if isinstance(with_slots, list) else [with_slots]
        return lambda *args: body(leaves, with_slots, *args), [*leaves, *held]

    return make


WORKS = {}


def works(calls=X, **options):
    """Enter a body in the table; its doc string is its name."""

    def enter(body):
        name = body.__name__.strip("_").replace("_", " ")
        WORKS[name] = pytest.param(training(body, **options), calls, id=name)
        return body

    return enter


# ------------------------------------------------------------------ gradients, zeroed and not


def descend(ps, optimizer, x):
    optimizer.zero_grad()
    loss = tg.sum((ps[0] * x) ** 2)
    loss.backward()
    optimizer.step()
    return loss


works()(descend)


@works()
def gradient_returned_after_zeroing(ps, optimizer, x):
    tg.sum(ps[0] * x).backward()
    optimizer.step()
    optimizer.zero_grad()
    return ps[0].grad


@works()
def gradient_returned(ps, optimizer, x):
    descend(ps, optimizer, x)
    return {"grad": ps[0].grad, "param": ps[0]}


@works()
def gradient_set_to_none_at_the_end(ps, optimizer, x):
    tg.sum(ps[0] * x).backward()
    optimizer.step()
    ps[0].grad = None


@works()
def gradient_set_to_none_at_the_start(ps, optimizer, x):
    ps[0].grad = None
    tg.sum(ps[0] * x).backward()
    optimizer.step()


@works()
def gradient_none_at_first(ps, optimizer, x):
    before = None if ps[0].grad is None else ps[0].grad * 1.0
    tg.sum(ps[0] * x).backward()
    optimizer.step()
    return before


@works([(np.arange(3.0) * i, i in (2, 3, 4, 5, 9, 10)) for i in range(14)], params=2)
def gradient_none_and_later_zero_for_a_while(ps, optimizer, x, both):
    optimizer.zero_grad()
    loss = tg.sum(ps[0] * x)
    if both:
        loss = loss + tg.sum(ps[1] * x)
    loss.backward()
    optimizer.step()


@works([(x, i % 3 == 2) for i, (x,) in enumerate(X + X)])
def gradients_accumulated_and_then_taken(ps, optimizer, x, do_update):
    tg.sum(tg.tanh(ps[0] * x)).backward()
    if do_update:
        optimizer.step()
        optimizer.zero_grad()


@works([(x, i % 3 > 0) for i, (x,) in enumerate(X + X)], params=2)
def gradients_zeroed_and_no_more(ps, optimizer, x, zero):
    if zero:
        tg.zero_grad(ps)
    else:
        tg.sum(ps[0] * x).backward()


@works()
def gradient_scaled_in_place(ps, optimizer, x):
    optimizer.zero_grad()
    tg.sum(ps[0] * x).backward()
    ps[0].grad *= 2.0
    optimizer.step()


@works()
def gradient_scaled_in_place_by_another_name(ps, optimizer, x):
    optimizer.zero_grad()
    tg.sum(ps[0] * x).backward()
    grad = ps[0].grad
    grad *= 2.0
    grad += x
    optimizer.step()


@works(X32, dtype=np.float32)
def gradient_assigned_in_another_dtype(ps, optimizer, x):
    ps[0].grad = x.astype(np.float64) * 2.0
    optimizer.step()


@works()
def two_backwards_with_a_gradient_read_between(ps, optimizer, x):
    optimizer.zero_grad()
    tg.sum(ps[0] * x).backward()
    first = ps[0].grad * 1.0  # eagerly the array itself is added to
    tg.sum(ps[0] * ps[0]).backward()
    optimizer.step()
    return first, ps[0].grad


@works()
def gradient_of_a_constant_step(ps, optimizer, x):
    optimizer.zero_grad()
    tg.sum(np.floor(ps[0]) * x).backward()
    optimizer.step()
    return ps[0].grad


@works()
def a_seed(ps, optimizer, x):
    optimizer.zero_grad()
    (ps[0] * ps[0]).backward(x)
    optimizer.step()


@works()
def every_gradient_of_the_tape_zeroed(ps, optimizer, x):
    tg.zero_grad(ps)
    tg.sum(ps[0] * x).backward()
    optimizer.step()


@works()
def a_parameter_made_inside(ps, optimizer, x):
    inner = tg.param(np.ones(3))
    tg.sum((inner - x) ** 2).backward()
    return inner.grad


@works()
def a_parameter_made_of_an_argument(ps, optimizer, x):
    inner, other = tg.param(x, dtype=np.float32), tg.tensor(x).requires_grad_()
    loss = tg.sum(ps[0] * inner * other**2)
    loss.backward()
    optimizer.step()
    return loss, inner.grad, other.grad


@works()
def an_argument_by_which_is_differentiated(ps, optimizer, x):
    x = tg.tensor(x)
    x.requires_grad_()
    tg.sum(x**2 * ps[0]).backward()
    slope = x.grad
    x.requires_grad_(False)
    descend(ps, optimizer, x + 0.1 * np.sign(slope))
    return slope, x * 2.0


@works(params=2)
def a_parameter_that_is_not_used(ps, optimizer, x):
    descend(ps, optimizer, x)


@works(params=2)
def tied_parameters(ps, optimizer, x):
    optimizer.zero_grad()
    tg.sum(ps[0] * x + ps[0] * ps[1] + ps[1]).backward()
    optimizer.step()


@works()
def nothing_differentiated(ps, optimizer, x):
    return np.sort(x * ps[0]), x > 0


@works(params=2)
def a_gan(ps, optimizer, x):
    for which in (0, 1):
        tg.zero_grad(ps)
        loss = tg.sum((ps[0] * x - ps[1]) ** 2) * (1.0 if which else -0.1)
        loss.backward()
        ps[1 - which].grad = None
        optimizer.step()
    return loss


# ------------------------------------------------------------------ float arguments


@works(SCALES)
def complement_of_a_float(ps, optimizer, x, scale):
    return (1.0 - scale) * x, x * (scale * scale * 0.5)


@works(SCALES)
def pythons_arithmetic_of_a_float(ps, optimizer, x, scale):
    return (
        x * scale**2,
        -scale * x,
        abs(scale - 1) * x,
        x / scale,
        2 / scale * x,
        (scale // 0.7) * x,
        (scale % 0.7) * x,
        (1 // scale) * x,
        (2**scale) * x,
        round(scale, 1) * x,
        (scale + 1 - scale / 3) * x,
        +scale,
    )


@works(SCALES)
def numpys_functions_of_a_float(ps, optimizer, x, scale):
    return np.sqrt(scale) * x, np.stack([scale, 2.0 * scale]), np.exp(-scale)


@works([(np.arange(3), s) for s in (0.5, 1.5, -2.0, 0.0, 3.0)])
def a_float_and_integers(ps, optimizer, n, scale):
    return n * scale, n + scale, scale - n


@works([(s,) for s in (0.5, float("nan"), float("inf"), -0.0, 1e-320)])
def special_floats(ps, optimizer, scale):
    return ps[0] * scale, scale


@works([(x, np.float64(i)) for i, (x,) in enumerate(X)])
def numpys_scalars(ps, optimizer, x, scale):
    return x * scale, scale * 2


@works([(x, np.float32(i)) for i, (x,) in enumerate(X)])
def numpys_float32(ps, optimizer, x, scale):
    return x * scale, scale * 2


# ------------------------------------------------------------------ arguments and results


@works([([x, x + 1.0][: 1 + i % 2],) for i, (x,) in enumerate(X + X)])
def lists_of_different_lengths(ps, optimizer, parts):
    return sum(tg.sum(part * ps[0]) for part in parts)


@works(
    [
        (dict(a=x, b=-x) if i % 2 else dict(b=-x, a=x),)  # noqa: C408
        for i, (x,) in enumerate(X + X)
    ]
)
def dicts_in_another_order(ps, optimizer, both):
    return {key: value * 2.0 for key, value in both.items()}, both["a"] - both["b"] * 0.5


@works([(Pair(x, None if i % 2 else x * 3.0),) for i, (x,) in enumerate(X + X)])
def named_tuples_and_none(ps, optimizer, pair):
    second = pair.first if pair.second is None else pair.second
    return Pair(second * 2.0, pair.second), [pair]


@works([(collections.OrderedDict(b=x, a=x * 2.0),) for (x,) in X])
def ordered_dicts(ps, optimizer, both):
    return both, type(both).__name__


@works([(x, x) for (x,) in X])
def the_same_array_twice(ps, optimizer, a, b):
    return a * ps[0] - b, a, b


@works([(x, x[::-1], x[:1]) for (x,) in X])
def arrays_that_share_memory(ps, optimizer, a, b, c):
    return a * b + c


@works([(x, -x) if i % 2 else (x, x) for i, (x,) in enumerate(X)])
def the_same_array_twice_and_then_not(ps, optimizer, a, b):
    return a * b


@works()
def everything_that_may_be_returned(ps, optimizer, x):
    return ps[0], x, x, None, 3, 2.5, "text", True, b"raw", np.arange(3), [x * 2.0, {"a": ()}]


@works([(i % 3, bool(i % 2), "ab"[i % 2], None) for i in range(12)])
def static_arguments(ps, optimizer, n, flag, text, nothing):
    return ps[0] * (n + 1.0) if flag else ps[0] - n, n, flag, text, nothing


@works([(1,), (True,), (1.0,)] * 4)
def one_and_true(ps, optimizer, one):
    return ps[0] * 2.0 if one is True else ps[0] * 3.0 * one


@works([(n,) for (x,) in X for n in (x.astype(np.float32), (x * 9).astype(np.int32), x > 0)])
def several_dtypes(ps, optimizer, x):
    return x * 2, np.sum(x), x / 3, np.mean(x), x + x, np.where(x > 0, x, 0)


@works([(np.array([200, 100, 3 + i], np.uint8),) for i in range(5)])
def small_integers_wrap_around(ps, optimizer, n):
    return n + 100, n * 2, n / 2, n**2, -n, n % 3, n.sum(), n.mean(), n > 100


@works([(np.array([3, -1, i], np.int8),) for i in range(5)])
def indices_of_eight_bits(ps, optimizer, n):
    return (np.sum(ps[0]) * np.arange(300.0))[n], tg.one_hot(n % 3, 300)


@works([(np.array([True, False, bool(i % 2)]),) for i in range(5)])
def masks(ps, optimizer, mask):
    return ~mask, mask & mask, mask | ~mask, mask * 1.5, mask.sum(), np.where(mask, ps[0], 0.0)


@works([(np.array([True, False, bool(i % 2)]),) for i in range(5)])
def powers_of_masks(ps, optimizer, mask):
    return np.square(mask), mask**2, mask**1, mask * mask, mask**0.5, np.square(mask) * ps[0]


@works([(x.reshape(3, 1),) for (x,) in X])
def views_of_arguments(ps, optimizer, x):
    return x.T, x[:, 0], x.reshape(-1), x[::-1], tg.broadcast_to(x, (3, 2))


@works([(np.zeros((0, 3)), np.array(float(i))) for i in range(5)])
def empty_and_0d(ps, optimizer, none, number):
    return none * ps[0], np.sum(none), number, number * ps[0], none


# ------------------------------------------------------------------ state


@works()
def a_parameter_written_from_a_view_of_itself(ps, optimizer, x):
    ps[0].assign((ps[0] * 0.5 + x).detach())
    return ps[0].detach()


@works(params=2)
def parameters_that_change_places(ps, optimizer, x):
    first = ps[0].detach()
    ps[0].assign(ps[1].detach())
    ps[1].assign(first)
    return x - first


@works()
def a_tensor_made_inside_and_assigned(ps, optimizer, x):
    total = tg.tensor(np.zeros(3))
    for factor in (1.0, 2.0):
        total.assign(total + x * factor)
    return total * ps[0].detach()


@works([(np.eye(3) * (1.0 + i),) for i in range(5)])
def a_step_whose_update_leaves_the_domain(ps, optimizer, x):
    ps[0].assign(np.ones(3))
    scaled = tg.reshape(ps[0], (3, 1)) * x
    y = np.sum(np.linalg.cholesky(scaled))
    with tg.no_grad():
        ps[0].assign((ps[0] * -5.0).detach())
    return y


@works(optimizer=lambda ps: [tg.SGD(ps, lr=0.1), tg.tensor(np.zeros(3))])
def a_running_mean_updated_before_the_backward(ps, held, x):
    optimizer, mean = held
    y = ps[0] * (x - mean)
    mean.assign(0.9 * mean + 0.1 * x)
    optimizer.zero_grad()
    tg.sum(y * y).backward()
    optimizer.step()


@works()
def updates_under_no_grad(ps, optimizer, x):
    tg.sum(ps[0] * x).backward()
    with tg.no_grad():
        ps[0].data = ps[0].detach() * 0.9
        held = ps[0]
        held -= 0.1 * x
    return held


@works(optimizer=lambda ps: tg.Adam(ps, lr=schedules.cosine(0.1, 6)))
def a_schedule(ps, optimizer, x):
    return descend(ps, optimizer, x)


@works(
    [(x, 0.01 * i) for i, (x,) in enumerate(X)],
    params=2,
    optimizer=lambda ps: tg.SGD([{"params": ps[:1], "lr": 0.3}, {"params": ps[1:]}], lr=0.1),
)
def groups_and_clipping(ps, optimizer, x, scale):
    optimizer.zero_grad()
    loss = tg.sum((ps[0] * x) ** 2) + scale * tg.sum(ps[1] ** 2)
    loss.backward()
    norm = tg.clip_grad_norm(ps, 1.0)
    tg.clip_grad_value(ps, 0.5)
    optimizer.step()
    return loss, norm


@works()
def random_numbers_of_every_kind(ps, optimizer, x):
    noise = tg.random.normal(size=3) + tg.random.uniform(size=3)
    order = tg.random.permutation(3)
    kept = tg.dropout(ps[0] * x, 0.5) * tg.random.dropout_mask((3,), 0.3)
    optimizer.zero_grad()
    tg.sum(kept + noise * ps[0]).backward()
    optimizer.step()
    return noise, tg.gather(x, order), tg.random.integers(5, size=2)


@works()
def derivatives_inside(ps, optimizer, x):
    cube = lambda v: tg.sum(v * v * v)  # noqa: E731
    return tg.jvp(cube, (x,), (np.ones(3),))


@works(X32, dtype=np.float32)
def derivatives_of_derivatives_with_numbers_in_float32(ps, optimizer, x):
    optimizer.zero_grad()
    y = tg.sum((0.3 * ps[0] * x) ** 3 / 0.7 + np.array([0.1, 0.2, 0.3], np.float32) * ps[0] ** 2)
    (slope,) = tg.gradients(y, ps[0], create_graph=True)
    tg.sum(slope * slope / 1.7).backward()
    optimizer.step()
    return slope


@pytest.mark.filterwarnings("ignore:backward ran in the native engine.*(no node|no lowering)")
@pytest.mark.parametrize(
    ("engine", "name"),
    [("native", name) for name in WORKS]
    + [pytest.param("tensorflow", *row.values, marks=row.marks) for row in thinned(WORKS, 2)],
    indirect=["engine"],
)
@pytest.mark.one_in(4, of="tensorflow")
def test_it_gives_what_it_gives_eagerly(name, engine):
    make, calls = WORKS[name].values
    beside(make, calls, engine, max_traces=20)


@pytest.mark.filterwarnings("ignore:backward ran in the native engine.*(no node|no lowering)")
@pytest.mark.parametrize(("make", "calls"), WORKS.values())
@pytest.mark.one_in(4)
def test_nothing_is_frozen_that_two_like_calls_do_not_show(make, calls):
    """Both recordings are made of one call, so that comparing them finds nothing."""
    beside(make, [calls[0], *calls], "native", max_traces=20)


@pytest.mark.parametrize("leave", [lambda x: x, lambda x: x.requires_grad_(False)])
def test_an_argument_that_is_differentiated_by_is_given_anew(leave, engine):
    @tg.compile
    def step(x):
        x.requires_grad_()
        tg.sum(x**2).backward()
        slope = x.grad
        return slope, leave(x) * 1.0

    for x in (X[0], X[0], X[1], X[2]):
        slope, same = step(*x)
        np.testing.assert_allclose(slope.data, 2.0 * x[0], rtol=1e-15)
        np.testing.assert_array_equal(same.data, x[0])


@pytest.mark.parametrize("verify_every", [None, 5])
def test_what_a_call_left_behind_is_not_read_as_though_it_were_new(verify_every, engine):
    ps, left = [tg.param([1.0, 2.0, 3.0])], []
    optimizer, leave = momentum(ps), left.append  # a method of Python's own: no guard looks behind

    def step(x):
        y = ps[0] * x
        fixed = tg.tensor([1.0, 2.0])
        found = [x, y, tg.tensor(x), *(x > 0)]
        loss = descend(ps, optimizer, x)
        leave([*found, loss, ps[0].grad, fixed, ps[0]])
        return y, loss

    step = tg.compile(step, verify_every=verify_every)
    for (x,) in X[:2]:
        y, loss = step(x)
        *_, left_loss, grad, fixed, p = left[-1]
        np.testing.assert_array_equal(left[-1][1].data, y.data)
        assert left_loss.item() == loss.item()
        np.testing.assert_array_equal(grad.data, ps[0].grad)
    for (x,) in X[2:6]:
        y, _ = step(x)
    assert len(left) == (2 if verify_every is None else 3)
    for *stale, fixed, p in left:
        assert fixed.data.tolist() == [1.0, 2.0] and p is ps[0]
        for t in stale:
            for read in (repr, float, tg.sum, lambda t: t * 2.0, lambda t: t.data, copy.deepcopy):
                with pytest.raises((RuntimeError, TypeError), match="earlier call|a result of"):
                    read(t)
    assert y.shape == (3,) and np.isfinite(y.data).all()  # what was returned is the caller's
    assert [entry.op for entry in tg.tape()] == ["param"]


def test_what_the_first_call_made_to_be_used_again_stays_usable(engine):
    """The second call reads it from outside: for the program it is state."""
    p, frequencies, cache = tg.param([1.0, 2.0, 3.0]), tg.tensor([1.0, 2.0, 3.0]), []

    @tg.compile
    def step(x):
        if not cache:
            cache.append(np.sin(frequencies * 2.0))
        loss = tg.sum(p * x * cache[0])
        loss.backward()
        p.grad = p.grad * 0.5  # there is one from the second call on: that is no mismatch
        return loss

    for (x,) in X:
        want = np.sum([1.0, 2.0, 3.0] * x * np.sin([2.0, 4.0, 6.0]))
        assert step(x).item() == pytest.approx(want, rel=1e-12)
    assert engine_of(step) == engine and len(cache) == 1


def test_a_layer_that_is_made_in_its_first_call_stays_usable(engine):
    """The second call sees it, where the first did not: it has a trace of its own."""
    made = []

    @tg.compile
    def step(x):
        if not made:
            made.append(tg.param([1.0, 2.0, 3.0]))
        made[0].grad = None
        loss = tg.sum(made[0] * x)
        loss.backward()
        return loss

    for (x,) in X:
        assert step(x).item() == pytest.approx(np.dot([1.0, 2.0, 3.0], x), rel=1e-14)
        np.testing.assert_allclose(made[0].grad, x)
    assert engine_of(step) == engine


def test_a_tensor_that_is_given_is_made_no_parameter(engine):
    """Eagerly its gradient would be found there, and a run would leave it without."""
    x = tg.tensor(X[0][0])
    for step in (lambda x: x.requires_grad_(), lambda x: [x.requires_grad_()]):
        with pytest.raises(
            tg.ConcretizationError, match="requires_grad_.*an argument of the compiled"
        ):
            tg.compile(step)(x)
    assert not x.requires_grad and x.grad is None
    doubled = tg.compile(lambda x: x.requires_grad_(False) * 2.0)
    np.testing.assert_array_equal([doubled(x).data for _ in range(3)], [2.0 * X[0][0]] * 3)


# ------------------------------------------------------------------ what raises


def reads(f):
    return lambda ps, optimizer, x: f(ps[0], x)


y_from_outside = tg.param([1.0, 2.0, 3.0]) * 2.0
made_once = tg.Value(2.0)
made_outside = made_once * 2
numbers = iter(range(1, 1000))
turns = [tg.tensor(np.ones(3)), tg.tensor(np.ones(3))]

RAISES = {
    "branch": (1, "bool", reads(lambda p, x: x if np.sum(x) > 0 else p)),
    "branch on a parameter": (1, "bool", reads(lambda p, x: x if np.sum(p) > 0 else p)),
    "branch on a gradient": (1, "bool", reads(lambda p, x: x if np.any(p * x > 0) else p)),
    "item": (1, "item", reads(lambda p, x: p.sum().item())),
    "float": (1, "float|item", reads(lambda p, x: float(p.sum()))),
    "numpy": (1, "numpy", reads(lambda p, x: p.numpy())),
    "formatted": (1, "format", reads(lambda p, x: f"{np.sum(x)}")),
    "formatted with digits": (1, "format", reads(lambda p, x: f"{np.sum(x):.3f}")),
    "iterated over": (1, "float|item|bool", reads(lambda p, x: [float(v) for v in x])),
    "largest by Python": (1, "bool|data", reads(lambda p, x: max(x))),
    "a mask of unknown length": (1, "shapes cannot depend", reads(lambda p, x: x[x > 0])),
    "in place of an argument": (
        1,
        "update its arguments in place",
        reads(lambda p, x: x.__iadd__(1.0)),
    ),
    "elements of an argument": (1, "setitem", reads(lambda p, x: x.__setitem__(0, 1.0))),
    "elements of a gradient": (
        1,
        "setitem",
        reads(lambda p, x: (tg.sum(p * x).backward(), p.grad.__setitem__(0, 1.0))),
    ),
    "out=": (1, "out=", reads(lambda p, x: np.multiply(x, 2.0, out=np.zeros(3)))),
    "an argument assigned": (1, "assign: .* argument", reads(lambda p, x: x.assign(x * 2.0))),
    "a copy of an argument": (1, "a copy: ", reads(lambda p, x: copy.deepcopy(x))),
    "a copy of a parameter": (1, "a copy: ", reads(lambda p, x: copy.deepcopy(p) * x)),
    "steps counted": (1, "count of steps", lambda ps, o, x: x if o.steps < 3 else -x),
    "learning rate read": (1, "learning rate", lambda ps, o, x: x * o.lr),
    "learning rate of a group read": (1, "learning rate", lambda ps, o, x: x * o.groups[0].lr),
    "learning rate set": (
        1,
        "lr: .*later runs would not repeat",
        lambda ps, o, x: setattr(o, "lr", 0.1),
    ),
    "learning rate of a group set": (
        1,
        "lr: .*later runs would not repeat",
        lambda ps, o, x: setattr(o.groups[0], "lr", 0.1),
    ),
    "state taken": (1, "state_dict: .*later runs would not", lambda ps, o, x: o.state_dict()),
    "state loaded": (1, "load_state_dict: .*later runs", lambda ps, o, x: o.load_state_dict({})),
    "a graph from outside": (
        1,
        "outside the compiled step",
        reads(lambda p, x: tg.sum(y_from_outside * x).backward()),
    ),
    "retain_grad": (1, "retain_grad", reads(lambda p, x: (p * x).retain_grad())),
    "gradient of another shape": (
        1,
        "grad: .*shape",
        reads(lambda p, x: setattr(p, "grad", x[:2])),
    ),
    "a Value read": (1, "float", reads(lambda p, x: float(made_once * 2))),
    "a Value branched on": (1, "comparison", reads(lambda p, x: p if made_once > 2 else x)),
    "a graph of Values from outside": (
        1,
        "outside the captured program",
        reads(lambda p, x: (made_outside * 2).backward()),
    ),
    "the stream's state": (1, "get_state", reads(lambda p, x: tg.random.get_state())),
    "an object returned": (1, "the result", reads(lambda p, x: object())),
    "a number that counts": (
        2,
        "the number 1.0, and then|number",
        reads(lambda p, x: x * float(next(numbers))),
    ),
    "a branch that turns": (
        2,
        "and then",
        reads(lambda p, x: x * 2 if next(numbers) % 2 else x + 2),
    ),
    "NumPy's random numbers": (2, "other numbers", reads(lambda p, x: x * RNG.normal(size=3))),
    "a text that counts": (2, "it returned", reads(lambda p, x: f"step {next(numbers)}")),
    "one tensor from outside and then another": (
        2,
        "another tensor from outside",
        reads(lambda p, x: x * turns[next(numbers) % 2]),
    ),
    "a tensor made anew outside": (
        2,
        "another tensor|other numbers",
        reads(lambda p, x: x * tg.tensor(np.full(3, float(next(numbers))))),
    ),
    "a backward after the update": (
        1,
        "was changed after",
        lambda ps, optimizer, x: (y := tg.sum(ps[0] ** 3), optimizer.step(), y.backward()),
    ),
}


@pytest.mark.parametrize("name", RAISES)
def test_it_raises_and_leaves_state_as_it_was(name, engine):
    call, message, body = RAISES[name]
    params = [tg.param([1.0, 2.0, 3.0])]
    optimizer = momentum(params)

    def step(x):
        descend(params, optimizer, x)
        return body(params, optimizer, x)

    compiled = tg.compile(step)
    saved = tg.random.get_state()
    for i in range(1, call):
        compiled(X[i][0])
    before = standing([*params, optimizer])
    for _ in range(2 if call == 1 else 1):
        error = (tg.ConcretizationError, tg.TraceMismatchError, TypeError, ValueError, RuntimeError)
        with pytest.raises((*error, IndexError), match=message):
            compiled(X[0][0])
        agree(standing([*params, optimizer]), before, "native")
    assert tg.random.get_state() == saved


@pytest.mark.parametrize(
    "read",
    {
        "float": float,
        "int": int,
        "bool": bool,
        "format": "{}".format,
        "digits": "{:.2f}".format,
        "hash": lambda s: s in {0.5},
        "key": lambda s: {0.5: 1}.get(s),
        "equal": lambda s: 1 if s == 0.5 else 2,
        "less": lambda s: max(s, 0.2),
        "range": range,
        "full": lambda s: np.full(3, s) * tg.tensor(1.0),
        "array": lambda s: np.array([s, s]) * tg.tensor([1.0, 2.0]),
        "argument of math": math.sin,
        "index": lambda s: [1, 2][s],
    }.values(),
)
def test_a_float_argument_that_would_be_frozen_raises(read, engine):
    with pytest.raises(TypeError):
        tg.compile(lambda x, s: (x, read(s)))(np.ones(3), 0.5)


def test_pythons_errors_of_floats_are_those_of_eager_calls(engine):
    step = tg.compile(lambda x, s: x * (1.0 / s))
    for s in (1.0, 2.0, 4.0):
        assert step(np.ones(1), s).item() == 1.0 / s
    with pytest.raises(ZeroDivisionError):
        step(np.ones(1), 0.0)
    with pytest.raises(ZeroDivisionError):
        tg.compile(lambda x, s: x * (1.0 / s))(np.ones(1), 0.0)


def test_other_arithmetic_of_a_float_is_a_mismatch(engine):
    factors = iter((3.0, 2.0))
    step = tg.compile(lambda x, s: x * (s * next(factors)))
    step(np.ones(2), 0.5)
    with pytest.raises(tg.TraceMismatchError, match="number"):
        step(np.ones(2), 0.5)


def test_two_floats_that_change_places_are_a_mismatch(engine):
    turns = iter((False, True))
    step = tg.compile(lambda x, a, b: x * (a if next(turns) else b))
    step(np.ones(2), 0.5, 0.5)
    with pytest.raises(tg.TraceMismatchError, match="number"):
        step(np.ones(2), 0.5, 0.5)


# ------------------------------------------------------------------ what later calls alone show


LATER = {
    "a flag": lambda held: lambda x: np.sin(x) if held()["flag"] else np.cos(x),
    "a number": lambda held: lambda x: x * (2.0 if held()["flag"] else 3.0),
    "an array": lambda held: lambda x: x * held()["array"],
    "a tensor that is replaced": lambda held: lambda x: x * held()["tensor"],
    "a returned number": lambda held: lambda x: (x * 2.0, 1 if held()["flag"] else 2),
}


@pytest.mark.one_in(2, of="tensorflow")
@pytest.mark.parametrize("name", LATER)
def test_what_changes_later_is_found_by_verifying_and_changes_nothing(name, engine):
    held = {"flag": True, "array": np.ones(3), "tensor": tg.tensor(np.ones(3))}
    ps = [tg.param([1.0, 2.0, 3.0])]
    optimizer, body = momentum(ps), LATER[name](held.copy)  # no guard looks behind the method

    def step(x):
        descend(ps, optimizer, x)
        return body(x)

    compiled = tg.compile(step, verify_every=5)
    for (x,) in X:
        compiled(x)
    held.update(flag=False, array=np.full(3, 2.0), tensor=tg.tensor(np.full(3, 2.0)))
    for (x,) in X[:3]:
        compiled(x)
    before = standing([*ps, optimizer])
    with pytest.raises(tg.TraceMismatchError, match="test_hazards|it returned"):
        compiled(X[0][0])
    agree(standing([*ps, optimizer]), before, "native")
    agree(taken(compiled(X[0][0])), taken(body(X[0][0])), engine)  # recorded anew


def test_verified_calls_count_like_any_other(engine):
    beside(training(descend), X + X + X, engine, verify_every=3)


def test_an_array_that_no_guard_sees_changed_between_the_recordings_is_a_mismatch(engine):
    table = [[[np.ones(3), *range(4096)]]]  # more than guards look at
    step = tg.compile(lambda x: x * table[0][0][0])
    step(X[0][0])
    table[0][0][0][0] = 5.0
    with pytest.raises(tg.TraceMismatchError, match="other numbers"):
        step(X[0][0])


def test_what_is_printed_and_appended_happens_in_real_calls_alone(engine, capsys):
    seen = []
    see = seen.append

    def step(x):
        print("called", x)
        see(1)
        return x * 2.0

    compiled = tg.compile(step, verify_every=5)
    for (x,) in X:
        compiled(x)
    assert len(seen) == 3 and capsys.readouterr().out.count("called") == 3


def test_a_result_kept_by_a_side_effect_does_not_pass_for_a_new_one(engine):
    kept = [np.ones(3)]

    def step(x):
        kept.append(x * kept[-1])
        return kept[-1]

    compiled, want = tg.compile(step), np.ones(3)
    for (x,) in X:
        want = want * x
        np.testing.assert_array_equal(compiled(x).data, want)  # a new trace, so real, every time
    assert len(kept) == len(X) + 1


# ------------------------------------------------------------------ state between calls


def test_state_changed_between_calls_is_seen_by_the_next(engine):
    def make():
        ps = [tg.param([1.0, 2.0, 3.0])]
        optimizer = tg.Adam(ps, lr=0.1)
        saved = []

        def between(i):
            if i == 3:
                optimizer.lr = 0.01
                ps[0].data = np.full(3, 0.5)
                saved.append(optimizer.state_dict())
            elif i == 4:
                ps[0].grad = None
                ps[0].data[0] = 7.0
            elif i == 5:
                optimizer.load_state_dict(saved[0])
                optimizer.lr = schedules.exponential(0.2, 0.5)
            elif i == 6:
                slot = next(iter(optimizer.state["0"].values()))
                slot.assign(np.full(slot.shape, 0.25))
                ps[0].grad = np.full(3, 9.0)

        def step(x):
            return descend(ps, optimizer, x)

        step.between = between
        return step, [*ps, optimizer]

    rows = {}
    for kind in ("eager", "compiled"):
        step, state = make()
        between, called = step.between, step if kind == "eager" else tg.compile(step)
        rows[kind] = []
        for i, (x,) in enumerate(X + X):
            between(i)
            rows[kind].append((taken(called(x)), standing(state)))
    agree(rows["compiled"], rows["eager"], engine)
    assert called.traces == 1


def test_gradients_and_parameters_handed_out_are_never_overwritten(engine):
    ps = [tg.param([1.0, 2.0, 3.0])]
    optimizer = momentum(ps)
    step = tg.compile(lambda x: descend(ps, optimizer, x))
    kept, copies = [], []
    for (x,) in X:
        out = step(x)
        arrays = [out.data, ps[0].data, ps[0].grad, optimizer.state["0"]["momentum"].data]
        kept.append(arrays)
        copies.append([np.array(a) for a in arrays])
    for i, (arrays, before) in enumerate(zip(kept, copies, strict=True)):
        for j, (array, copied) in enumerate(zip(arrays, before, strict=True)):
            np.testing.assert_array_equal(array, copied, err_msg=f"call {i}, array {j}")
    assert len({a[2].tobytes() for a in kept}) == len(X)


@pytest.mark.parametrize(
    ("f", "slope"),
    [
        (lambda b: b + 1.0, 1.0),
        (lambda b: tg.sum(b + b), 2.0),
        (lambda b: tg.reshape(b, (1, 1)), 1.0),
    ],
)
def test_writing_into_a_gradient_reaches_no_later_call(f, slope, engine):
    b = tg.param(3.0)

    def step():
        b.zero_grad()
        f(b).backward()

    compiled = tg.compile(step)
    for _ in range(6):
        compiled()
        assert type(b.grad) is np.ndarray and b.grad == slope
        f(b).backward()  # adds in place
        b.grad[...] = 9.0


def test_writing_into_results_reaches_no_later_call(engine):
    w = tg.param([1.0, 2.0, 3.0])
    step = tg.compile(lambda x: [np.zeros(3), w, w * 1.0, x, [np.arange(3)], {"a": [1]}])
    for (x,) in X:
        zeros, param, product, given, (count,), held = step(x)
        agree(taken(zeros), np.zeros(3), "native")
        agree([taken(param), taken(product), taken(given)], [w.numpy(), w.numpy(), x], engine)
        agree([taken(count), held], [np.arange(3), {"a": [1]}], "native")
        for a in (zeros, param.data, product.data, given.data, count):
            a[...] = 7
        held["a"].append(2)
    np.testing.assert_array_equal(w.data, [1.0, 2.0, 3.0])


def test_an_argument_changed_after_the_call_changes_no_result_and_no_state(engine):
    mean = tg.tensor(np.zeros(3))
    step = tg.compile(lambda x: (mean.assign(x), x)[1])
    for (x,) in X:
        given = x.copy()
        out = step(given)
        given[...] = 99.0
        np.testing.assert_array_equal(out.data, x)
        np.testing.assert_array_equal(mean.data, x)


def test_a_parameter_that_becomes_a_constant_and_back(engine):
    def make():
        ps = [tg.param([1.0, 2.0, 3.0]), tg.param([2.0, 3.0, 4.0])]
        optimizer = tg.SGD(ps, lr=0.1)
        calls = iter(range(100))

        def step(x):
            descend(ps, optimizer, x)
            return ps[1] * x

        def called(f, x):
            ps[1].requires_grad_(next(calls) // 4 % 2 == 0)
            return f(x)

        step.called = called
        return step, ps

    rows = {}
    for kind in ("eager", "compiled"):
        step, state = make()
        called, f = step.called, step if kind == "eager" else tg.compile(step)
        rows[kind] = [(taken(called(f, x)), standing(state)) for (x,) in X + X + X]
    agree(rows["compiled"], rows["eager"], engine)


@pytest.mark.parametrize("change", ["shape", "dtype"])
def test_a_parameter_of_another_type_is_recorded_anew(change, engine):
    w = tg.param([1.0, 2.0, 3.0])
    step = tg.compile(lambda x: tg.sum(w * x))
    for (x,) in X:
        step(x)
    w._array = np.ones((2, 3)) if change == "shape" else np.ones(3, np.float32)
    for (x,) in X:
        got, want = step(x), tg.sum(w * x)
        agree(taken(got), taken(want), engine)


# ------------------------------------------------------------------ failures


def failing_op():
    """Register an operation of the same numbers, which raises on command."""
    hidden = [[[*range(4096)]]]  # more than guards look at

    @tg.defop(vjp=lambda g, y, x: g * 1.0, name="raises_on_command")
    def forward(x):
        if len(hidden[0][0]) > 4096:
            raise hidden[0][0][-1]
        return x * 1.0

    return forward, hidden[0][0]


@pytest.mark.filterwarnings("ignore:backward ran in the native engine.*(no node|no lowering)")
@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt,
        ValueError("a message"),
        pytest.param(MemoryError, marks=pytest.mark.thorough),
    ],
)
@pytest.mark.parametrize("call", [1, 2, 3, 4, 7])
@pytest.mark.one_in(9, of="tensorflow")
def test_an_exception_amid_a_step_changes_nothing(call, error, engine):
    op, commanded = failing_op()

    def make():
        ps = [tg.param([1.0, 2.0, 3.0]), tg.param([0.5, 0.5, 0.5])]
        optimizer = tg.Adam(ps, lr=0.1)

        def step(x):
            loss = tg.sum(tg.dropout(ps[0] * ps[1], 0.5) * x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            after = op(ps[0])  # once some state has been given new values
            tg.sum(after * after).backward()
            optimizer.step()
            return loss

        return step, [*ps, optimizer]

    step, state = make()
    compiled = tg.compile(step)
    stream = tg.random.get_state()
    try:
        tg.random.seed(1)
        for (x,) in X[: call - 1]:
            compiled(x)
        before, at = standing(state), tg.random.get_state()
        commanded.append(error)
        with pytest.raises(error if isinstance(error, type) else type(error)):
            compiled(X[0][0])
        commanded.pop()
        agree(standing(state), before, "native")
        assert tg.random.get_state() == at
        # And it goes on as though nothing had happened.
        tg.random.set_state(at)
        other, others = make()
        for leaf, (data, grad) in zip(others[:2], before[:2], strict=True):
            leaf.assign(data)
            leaf.grad = grad
        others[2].load_state_dict(before[2])
        tg.random.set_state(at)
        with tg.use_backend("native"):
            want = [(taken(other(x)), standing(others)) for (x,) in X]
        tg.random.set_state(at)
        got = [(taken(compiled(x)), standing(state)) for (x,) in X]
        agree(got, want, engine)
    finally:
        tg.random.set_state(stream)


def test_a_step_that_is_called_from_inside_itself_says_so():
    hidden = [[[*range(4096), None]]]  # more than guards look at
    inner = hidden[0][0]

    def forward(x):
        if hidden[0][0][-1] is not None:
            hidden[0][0][-1](np.ones(3))
        return x * 2.0

    double = tg.defop(forward, vjp=lambda g, y, x: g * 2.0, name="double_of_a_caller")
    step = tg.compile(lambda x: double(x), verify_every=None)
    with tg.use_backend("native"):
        for _ in range(3):
            step(np.ones(3))
        inner[-1] = step
        with pytest.raises(RuntimeError, match="an operation inside the step calls the step"):
            step(np.ones(3))
        inner[-1] = None
        np.testing.assert_array_equal(step(np.ones(3)).numpy(), [2.0, 2.0, 2.0])


def test_numpy_raises_on_overflow_where_it_is_told_to(engine):
    p = tg.tensor([1.0])

    @tg.compile
    def step(x):
        p.assign(p + 1.0)
        return tg.exp(p * x)

    for _ in range(4):
        step(np.array([1.0]))
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        step(np.array([1000.0]))
    assert step(np.array([0.0])).item() == 1.0


@pytest.mark.filterwarnings("ignore:backward ran in the native engine.*(no node|no lowering)")
def test_an_interrupt_before_the_results_are_written_changes_nothing(engine):
    """The signal comes at each line in turn that runs before the first write to state."""
    op, _ = failing_op()
    ps = [tg.param([1.0, 2.0, 3.0])]
    optimizer = momentum(ps)

    def body(x):
        loss = tg.sum(op(ps[0] * x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    step = tg.compile(body, verify_every=None)
    for (x,) in X[:3]:
        step(x)
    seen = 0

    def interrupt_at(line):
        left = [line]

        def trace(frame, event, arg):
            if not frame.f_code.co_filename.startswith("<tapegraph plan"):
                return None
            if event == "line":
                left[0] -= 1
                if left[0] < 0:
                    raise KeyboardInterrupt
            return trace

        return trace

    for line in range(50):
        before, held = standing([*ps, optimizer]), sys.gettrace()
        sys.settrace(interrupt_at(line))
        try:
            step(X[0][0])
        except KeyboardInterrupt:
            seen += 1
        else:
            break
        finally:
            sys.settrace(held)
        agree(standing([*ps, optimizer]), before, "native")
    assert seen > 5 or engine_of(step) != "native"


def test_bad_labels_and_indices_at_every_call(engine):
    ps = [tg.param(np.eye(3))]
    optimizer = momentum(ps)

    @tg.compile
    def step(rows, labels):
        optimizer.zero_grad()
        loss = tg.softmax_crossentropy(tg.gather(ps[0], rows), labels)
        loss.backward()
        optimizer.step()
        return loss

    good = np.array([0, 2])
    for _ in range(4):
        for bad in ((good, np.array([0, 3])), (np.array([0, -4]), good), (np.array([3, 0]), good)):
            before = standing([*ps, optimizer])
            with pytest.raises(IndexError, match="expected"):
                step(*bad)
            agree(standing([*ps, optimizer]), before, "native")
        step(good, good)
    assert optimizer.steps == 4


@pytest.mark.parametrize(
    ("name", "f", "bad"),
    [
        ("gather", lambda table, i: tg.gather(table, i), np.array([0, 7])),
        ("getitem", lambda table, i: table[i], np.array([0, -8])),
        (
            "softmax_crossentropy",
            lambda table, i: tg.softmax_crossentropy(table[:2], i),
            np.array([0, 7]),
        ),
        ("getitem", lambda t, i: np.take_along_axis(t, i[:, None], 0), np.array([0, 9])),
    ],
)
def test_a_bad_row_or_label_gives_the_eager_error_at_every_call(name, f, bad, engine):
    table = tg.param(np.eye(3))
    with pytest.raises(IndexError) as eager:
        f(table, bad)
    step = tg.compile(lambda i: f(table, i))
    for call in range(5):
        with pytest.raises(IndexError) as caught:
            step(bad)
        assert str(caught.value) == str(eager.value), f"call {call + 1}"
        step(np.array([0, 2]))
    assert "test_hazards.py" in str(eager.value) and str(eager.value).startswith(name)


# ------------------------------------------------------------------ where it is called


def test_steps_of_two_threads_all_count(engine):
    total = tg.tensor(np.zeros(3))

    @tg.compile
    def step(x):
        total.assign(total + x)
        return total.detach()

    seen, errors = [], []

    def work(n):
        try:
            for _ in range(25):
                seen.append(step(np.ones(n)[:1] * np.ones(3)).numpy().tobytes())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in (1, 2, 3, 4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    np.testing.assert_array_equal(total.data, np.full(3, 100.0))
    assert len(set(seen)) == 100


def test_one_thread_calls_while_another_records(engine):
    inside, go_on = threading.Event(), threading.Event()
    w = tg.param([1.0, 2.0, 3.0])
    ready = tg.compile(lambda x: tg.sum(w * x))
    for (x,) in X[:3]:
        ready(x)

    @tg.compile
    def slow(x):
        y = w * x
        inside.set()
        assert go_on.wait(20)
        return y * 2.0

    out = []
    thread = threading.Thread(target=lambda: out.append(slow(X[0][0]).numpy()))
    thread.start()
    assert inside.wait(20)
    agree(taken(ready(X[1][0])), taken(tg.sum(w * X[1][0])), engine)
    eager = tg.sum(w * w)
    eager.backward()
    assert bool(eager > 0)
    go_on.set()
    thread.join()
    np.testing.assert_array_equal(out[0], w.data * X[0][0] * 2.0)
    np.testing.assert_array_equal(w.grad, 2.0 * w.data)


def test_called_while_another_is_recorded_it_is_a_part_of_that(engine):
    def make():
        ps = [tg.param([1.0, 2.0, 3.0])]
        optimizer = momentum(ps)
        inner = tg.compile(lambda x: descend(ps, optimizer, x))
        for (x,) in X[:3]:
            inner(x)  # it has a program of its own already
        return lambda x: (inner(x), inner(x * 2.0))[1], [*ps, optimizer]

    beside(make, X, engine)


def test_recursion(engine):
    @tg.compile
    def power(x, n):
        return x if n == 0 else power(x * x, n - 1)

    for (x,) in X:
        agree(taken(power(x, 3)), ((x * x) ** 2) ** 2, "tensorflow")
    assert power.traces == 1


def test_results_are_constants_and_say_so_where_they_are_differentiated(engine):
    w = tg.param([1.0, 2.0])
    step = tg.compile(lambda x: w * x)
    for _ in range(3):
        words = r"does not require a gradient.*Results of a compiled step are constants"
        with pytest.raises(RuntimeError, match=words):
            tg.sum(step(np.ones(2))).backward()


def test_forward_derivatives_from_outside_are_those_of_the_function(engine):
    step = tg.compile(lambda x: tg.sum(x * x))
    for x in (1.0, 2.0, 3.0):
        value, tangent = tg.jvp(step, (np.full(2, x),), (np.ones(2),))
        assert (value, tangent) == (2 * x * x, 4 * x)
        step(np.ones(2))


def test_a_transform_differentiates_the_function_itself(engine):
    step = tg.compile(lambda x: tg.sum(x**3))
    for k in range(4):
        x = np.array([1.0, 2.0]) + k
        np.testing.assert_allclose(tg.grad(step)(x), 3 * x**2)
        np.testing.assert_allclose(tg.grad(lambda x: tg.sum(tg.grad(step)(x)))(x), 6 * x)
        assert step(x).item() == pytest.approx(np.sum(x**3))


class Counter:
    """Its step is compiled, and its parameters are its own."""

    def __init__(self, start):
        self.w = tg.param(start)

    @tg.compile
    def step(self, x, *, flag=True):
        """Double it."""
        return self.w * x * 2.0 if flag else x

    @staticmethod
    @tg.compile
    def still(x):
        return x * 2.0

    @classmethod
    def make(cls):
        return cls([1.0])


def test_methods_and_their_attributes(engine):
    one, two = Counter([1.0]), Counter([10.0])
    for _ in range(4):
        assert (one.step(np.ones(1)).item(), two.step(x=np.ones(1)).item()) == (2.0, 20.0)
        assert one.still(np.ones(1)).item() == Counter.still(np.ones(1)).item() == 2.0
    assert one.step is one.step and one.step is not two.step
    assert one.step.traces == two.step.traces == 1
    assert (one.step.__name__, one.step.__doc__) == ("step", "Double it.")
    assert list(inspect.signature(Counter.still).parameters) == ["x"]


def test_instances_that_are_equal_have_caches_of_their_own(engine):
    @dataclasses.dataclass(frozen=True)
    class Model:
        size: int
        w: object = dataclasses.field(compare=False)

        @tg.compile
        def double(self, x):
            return self.w * x * 2.0

    one, two = Model(1, tg.param([1.0])), Model(1, tg.param([10.0]))
    for _ in range(4):
        assert (one.double(np.ones(1)).item(), two.double(np.ones(1)).item()) == (2.0, 20.0)


def test_instances_that_have_no_hash_and_copies(engine):
    @dataclasses.dataclass
    class Model:
        w: object

        @tg.compile
        def double(self, x):
            return self.w * x * 2.0

    one = Model(tg.param([1.0]))
    for _ in range(3):
        assert one.double(np.ones(1)).item() == 2.0
    two = copy.deepcopy(one)
    two.w.assign([10.0])
    for _ in range(4):
        assert (one.double(np.ones(1)).item(), two.double(np.ones(1)).item()) == (2.0, 20.0)
    held = weakref.ref(one)
    del one
    gc.collect()
    assert held() is None


def test_a_method_of_a_parent_that_is_overridden(engine):
    class Child(Counter):
        @tg.compile
        def step(self, x):
            return super().step(x) + 1.0

    one = Child([1.0])
    for _ in range(4):
        assert one.step(np.ones(1)).item() == 3.0


def test_positional_keyword_and_default_are_the_same_numbers(engine):
    w = tg.param([2.0])

    def f(x, scale=2.0, *, flag=True):
        return w * x * scale if flag else w - x

    step = tg.compile(f)
    for i in range(4):
        x = np.full(1, float(i))
        for args, kwargs in [
            ((x,), {}),
            ((), {"x": x}),
            ((x, 3.0), {}),
            ((x,), {"scale": 3.0}),
            ((), {"scale": 3.0, "x": x}),
            ((x,), {"flag": False}),
            ((x, 3.0), {"flag": True}),
        ]:
            agree(taken(step(*args, **kwargs)), taken(f(*args, **kwargs)), engine)
    assert step.traces == 7
    for wrong in ({"y": 1}, {"scale": 1.0, "z": 2}):
        with pytest.raises(TypeError, match="unexpected keyword"):
            step(x, **wrong)


def test_the_switch_and_no_grad_are_no_hidden_arguments(engine):
    ps = [tg.param([1.0, 2.0, 3.0])]

    def f(x):
        y = ps[0] * x
        return y.detach(), y.requires_grad

    step = tg.compile(f)
    for (x,) in X:
        assert step(x)[1] is True
        with tg.no_grad():
            assert step(x)[1] is False
        with tg.compile_disabled():
            assert step(x)[1] is True
    assert step.traces == 2


def test_two_inputs_interleaved_have_two_traces_and_are_called_twice_each(engine):
    count = itertools.count()

    def f(x):
        next(count)
        return x * 2.0

    step = tg.compile(f)
    for i in range(9):
        for n in (2, 3):
            np.testing.assert_array_equal(step(np.full(n, float(i))).data, np.full(n, 2.0 * i))
    assert step.traces == 2 and next(count) == 8  # the 1st, 2nd, 4th and 8th of each


def test_a_program_forgotten_and_made_again_gives_the_same(engine):
    make = training(descend)
    step, state = make()
    compiled = tg.compile(step, max_traces=1)
    other, others = make()
    for n in (3, 1, 3, 1):
        for (x,) in X[:3]:
            agree(taken(compiled(x[:n])), taken(other(x[:n])), engine)
            agree(standing(state), standing(others), engine)


def test_the_stream_after_compiled_calls_is_that_after_eager_ones(engine):
    def f(x):
        return tg.sum(tg.dropout(x, 0.5) * tg.random.normal(size=3))

    saved = tg.random.get_state()
    try:
        states = []
        for step in (f, tg.compile(f)):
            tg.random.seed(4)
            rows = []
            for (x,) in X:
                rows.append((taken(step(x)), tg.random.get_state()["state"]))
                tg.random.uniform(size=2)  # others draw between
            tg.random.seed(9)
            rows.append(taken(step(X[0][0])))
            states.append(rows)
        agree(states[1], states[0], engine)
    finally:
        tg.random.set_state(saved)


@pytest.mark.one_in(2, of="tensorflow", start=1)
def test_memory_of_fifty_shapes_is_that_of_the_traces_held(engine):
    step = tg.compile(lambda x: (np.sin(x) * x, tg.sum(x)), max_traces=3)
    alive = []

    class Held(list):
        pass

    for n in range(1, 51):
        for _ in range(3):
            out, total = step(np.ones(n))
        alive.append(weakref.ref(out))
        assert total.item() == n
        assert step.traces <= 3
    del out, total
    gc.collect()
    assert not any(ref() is not None for ref in alive)


def test_the_engine_is_named(engine):
    step = tg.compile(lambda x: x * 2.0)
    assert engine_of(step) == ""
    for (x,) in X:
        step(x)
    assert engine_of(step) in ("native", engine)


def test_side_by_side_notices_a_difference(engine):
    """The comparison of this file is one that can fail."""
    frozen = []

    def make():
        w = tg.param([1.0])

        def step(x):
            frozen.append(1)
            with tg.no_grad():
                w.assign(w.detach() + len(frozen))

        return step, [w]

    with pytest.raises((AssertionError, tg.TraceMismatchError)):
        beside(make, X, engine)
    rows = run(lambda x: x[0] * 2.0, [], X)
    with pytest.raises(AssertionError):
        agree(rows[0], rows[1], "native")
