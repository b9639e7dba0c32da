"""The native plan: its gradients have names of their own, and its buffers are seen by nobody."""

from __future__ import annotations

import gc
import itertools
import re
import tracemalloc
from collections import deque

import numpy as np
import pytest
from programs import each_program

import tapegraph as tg
from tapegraph.compiling.arguments import flattened
from tapegraph.compiling.trace import Trace
from tapegraph.engines import registry
from tests.compiling.attention import attention


@pytest.fixture(autouse=True)
def native():
    with tg.use_backend("native"):
        yield


def both(make, calls):
    """Call a step eagerly and compiled, each on state of its own; results and gradients agree."""
    (eager, params), (step, others) = make(), make()
    compiled = tg.compile(step)
    with np.errstate(all="ignore"):
        for given in calls:
            want, got = eager(*given), compiled(*given)
            np.testing.assert_array_equal(got.numpy(), want.detach().numpy())
            for a, b in zip(params, others, strict=True):
                np.testing.assert_array_equal(b.data, a.data)
                assert (a.grad is None) == (b.grad is None)
                if a.grad is not None:
                    np.testing.assert_array_equal(b.grad, a.grad)
    return compiled, others


# ------------------------------------------------------------------ gradients


def test_a_result_that_is_a_parameter_has_gradient_one():
    p = tg.param(3.0)

    @tg.compile
    def step(x):
        p.grad = None
        p.backward()
        return p * x

    for _ in range(4):
        assert step(2.0).item() == 6.0
        assert p.grad == 1.0
        p.grad[...] = 7.0  # the user's own: no constant of the plan


def test_what_the_plan_holds_is_handed_out_as_a_copy():
    p = tg.param([1.0, 2.0])
    f = tg.compile(lambda: (tg.sum(p * 1.0), np.ones_like(p)))

    @tg.compile
    def step():
        p.grad = None
        (p + p).backward(np.ones(2))
        return p.grad

    for _ in range(4):
        f()
        out = step()
        np.testing.assert_array_equal(out.data, [2.0, 2.0])
        out.data[...] = 5.0
        p.grad[...] = 6.0


def test_two_backwards_in_one_step():
    def make():
        a, b = tg.param([1.0, 2.0]), tg.param(3.0)

        def step(x):
            tg.zero_grad([a, b])
            y = a * b * x
            tg.sum(y).backward()
            tg.sum(tg.exp(a) * y).backward()
            b.backward()
            return y

        return step, [a, b]

    both(make, [(np.array([0.5, float(i)]),) for i in range(5)])


def test_the_same_backward_twice():
    def make():
        a = tg.param([1.0, 2.0])

        def step(x):
            a.grad = None
            loss = tg.sum(a * a * x)
            loss.backward()
            loss.backward()
            return loss

        return step, [a]

    _, (a,) = both(make, [(np.array([1.0, 3.0]),)] * 4)
    np.testing.assert_array_equal(a.grad, [4.0, 24.0])


def test_a_seed_that_is_a_parameter_and_one_that_depends_on_the_step():
    def make():
        a, b = tg.param([1.0, 2.0]), tg.param([3.0, 4.0])

        def step(x):
            a.grad = b.grad = None
            y = a * b * x
            y.backward(b.detach())
            y.backward(x * 2.0)
            b.backward(b.detach())
            return y

        return step, [a, b]

    both(make, [(np.array([0.5, float(i)]),) for i in range(5)])


def test_a_parameter_that_is_not_reached():
    def make():
        a, b = tg.param([1.0, 2.0]), tg.param([3.0, 4.0])

        def step(x):
            a.grad = b.grad = None
            y = tg.sum(a * x) + 0.0 * tg.sum(np.sign(b))
            y.backward()
            return y

        return step, [a, b]

    both(make, [(np.array([0.5, float(i)]),) for i in range(5)])


def test_a_step_after_an_update_differentiates_the_new_parameter():
    def make():
        a = tg.param([1.0, 2.0])
        optimizer = tg.SGD([a], lr=0.25)

        def step(x):
            for _ in range(3):
                optimizer.zero_grad()
                loss = tg.sum(tg.sqrt(a * x))
                loss.backward()
                optimizer.step()
            return loss

        return step, [a]

    calls = [[1.0, 2.0], [1.0, 3.0], [2.0, 2.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    both(make, [(np.array(x),) for x in calls])


def test_zero_cotangents_absorb_infinite_slopes_in_every_run():
    def make():
        a, b = tg.param([4.0, 1.0, 9.0]), tg.param(2.0)

        def step(x):
            a.grad = b.grad = None
            loss = tg.sum(tg.where(x > 0, tg.sqrt(a * x) * b, 0.0))
            loss.backward()
            return loss

        return step, [a, b]

    calls = [[1.0, 1.0, 1.0], [1.0, 2.0, 1.0], [0.0, 1.0, 1.0], [0.0, 0.0, 0.0], [1.0, np.nan, 2.0]]
    _, (a, _) = both(make, [(np.array(x),) for x in calls])
    # b sqrt(x / a) / 2, and nothing where the branch is not taken.
    np.testing.assert_allclose(a.grad, [0.5, 0.0, np.sqrt(2.0) / 3.0], rtol=1e-15)


def test_a_nan_of_the_second_backward_after_an_update():
    def make():
        a = tg.param([4.0, 1.0])
        optimizer = tg.SGD([a], lr=0.5)

        def step(x):
            optimizer.zero_grad()
            tg.sum(a * a).backward()
            optimizer.step()
            optimizer.zero_grad()
            loss = tg.sum(tg.where(x > 0, tg.sqrt(a * x), 0.0))
            loss.backward(tg.sum(x))
            optimizer.step()
            return loss

        return step, [a]

    both(make, [(np.array(x),) for x in ([1.0, 1.0], [2.0, 1.0], [0.0, 1.0], [0.0, 0.0])])


# ------------------------------------------------------------------ buffers


def chain(x, w):
    for _ in range(5):
        x = tg.tanh(x * w + 1.0)
    return x


def test_nothing_is_allocated_for_what_nobody_keeps():
    w = tg.param(np.full((64, 64), 0.5))

    @tg.compile
    def step(x):
        w.grad = None
        loss = tg.sum(chain(x @ w, w))
        loss.backward()
        return loss

    for _ in range(3):
        step(np.ones((64, 64)))
    body = [
        line
        for line in step.source().splitlines()
        if re.search(r" = (mult|add|sub|tanh|mat)", line)
    ]
    fresh = [line for line in body if not re.search(r"b\d+\)", line)]
    # The gradient, which leaves, is the only array of the plan that is new in every run, written
    # over what was added up before.
    assert len(body) > 25
    new, last = (line.split(" = ")[0].strip(" #") for line in fresh if "reduce" not in line)
    assert re.search(rf"{last} = add\({new}, \w+, {new}\)", step.source())
    assert f"d0 = {last}\n" in step.source()


@pytest.mark.parametrize("name", ["reshape", "transpose", "getitem", "broadcast", "itself"])
def test_results_that_are_views_are_not_overwritten(name):
    views = {
        "reshape": lambda y: y.reshape(8),
        "transpose": lambda y: y.T,
        "getitem": lambda y: y[1:],
        "broadcast": lambda y: np.broadcast_to(y, (3, 2, 4)),
        "itself": lambda y: y,
    }

    @tg.compile
    def f(x):
        y = np.exp(x)
        view = views[name](y)
        return view, chain(y, x), view * 2.0

    kept = [(np.full((2, 4), i), f(np.full((2, 4), float(i)))) for i in range(6)]
    for x, (view, _, double) in kept:
        want = views[name](np.exp(x.astype(float)))
        np.testing.assert_array_equal(view.data, want)
        np.testing.assert_array_equal(double.data, want * 2.0)


def test_a_view_that_is_read_late_keeps_what_it_views():
    def f(x):
        y = np.exp(x)
        late = y.T
        other = chain(y, x)
        return np.sum(other * late)

    compiled = tg.compile(f)
    rng = np.random.default_rng(0)
    for _ in range(5):
        x = rng.normal(size=(6, 6))
        y = other = np.exp(x)
        for _ in range(5):
            other = np.tanh(other * x + 1.0)
        assert compiled(x).item() == np.sum(other * y.T)


def test_results_are_written_over_what_nobody_reads_later():
    def f(x):
        y = np.exp(x)
        z = np.sin(y)
        return y * 2.0, y + 1.0, z * y, z - y

    compiled = tg.compile(f)
    for i in range(5):
        x = np.full(3, float(i))
        for got, want in zip(compiled(x), f(x), strict=True):
            np.testing.assert_array_equal(got.data, want)


def test_arguments_and_state_are_never_written_to():
    w = tg.param(np.full(5, 0.5))
    slot = tg.tensor(np.zeros(5))

    @tg.compile
    def step(x):
        slot.assign(slot * 0.5 + x)
        return tg.sum(chain(x, w) * slot)

    x = np.linspace(0.0, 1.0, 5)
    x.flags.writeable = False
    held = w.data
    for _ in range(4):
        before = slot.data
        copy = before.copy()
        step(x)
        np.testing.assert_array_equal(before, copy)
        np.testing.assert_array_equal(held, np.full(5, 0.5))


def test_a_run_that_fails_half_way_leaves_the_next_one_right():
    table = tg.param(np.arange(12.0).reshape(4, 3))

    @tg.compile
    def step(x, ids):
        y = np.exp(chain(x, x))
        table.grad = None
        loss = tg.sum(table[ids] * y)
        loss.backward()
        return loss

    x, ids = np.linspace(0, 1, 6).reshape(2, 3), np.array([1, 3])
    want = step(x, ids).item()
    for wrong in (False, False, True, False, True, False):
        if wrong:
            with pytest.raises(IndexError):
                step(x, ids + 4)
        else:
            assert step(x, ids).item() == want


LAYOUTS = {
    "C": lambda x: x,
    "F": np.asfortranarray,
    "strided": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "backwards": lambda x: x[::-1].copy()[::-1],
    "repeated": lambda x: np.broadcast_to(x[:1], x.shape),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arrays_in_any_order_give_the_very_numbers_of_a_real_call(dtype):
    rng = np.random.default_rng(0)
    start = rng.normal(size=(7, 5)).astype(dtype)

    def make():
        w = tg.param(start)

        def step(x):
            w.grad = None
            y = tg.gelu(x @ w) + tg.sum(x, axis=1, keepdims=True) * tg.mean(x, axis=0)[:5]
            loss = tg.mean(tg.exp(y * 0.1)) + tg.sum(x.T * 0.5)
            loss.backward()
            return loss

        return tg.compile(step), w

    compiled, w = make()
    x = rng.normal(size=(40, 7)).astype(dtype)
    for change in [*LAYOUTS.values()] * 4:
        given = change(x)
        real, other = make()  # its first call is a real one
        assert compiled(given).item() == real(given).item()
        np.testing.assert_array_equal(w.grad, other.grad)


def test_a_function_of_the_users_own_may_keep_what_it_is_given():
    seen = []

    def forward(x):
        seen.append(x)
        return x * 2.0

    op = tg.defop(forward, vjp=lambda g, y, x: g * 2.0, name="plan_test_keeps")
    compiled = tg.compile(lambda x: tg.sum(op(np.exp(x)) * np.exp(-x)))
    for i in range(6):
        compiled(np.full(3, float(i)))
    for i, x in enumerate(seen[-4:], 2):
        np.testing.assert_array_equal(x, np.exp(np.full(3, float(i))))


def test_random_programs_give_the_very_numbers_of_eager_ones(thorough):
    @each_program(100 if thorough else 12, 0, shrink=True)
    def check(program):
        def make():
            params = [tg.param(a) for a in program.inputs]

            def step(scale):
                for p in params:
                    p.grad = None
                y = program.run(*[p * scale for p in params])
                tg.sum(y * scale).backward()
                return y

            return step, params

        both(make, [(np.array(scale),) for scale in (1.0, 1.0, 0.9, 1.1, 1.0)])

    check()


@pytest.mark.usefixtures("few_objects")
def test_memory_is_flat_over_many_calls():
    w = tg.param(np.full((32, 32), 0.5))
    optimizer = tg.Adam([w])

    @tg.compile
    def step(x):
        optimizer.zero_grad()
        loss = tg.mean(chain(x @ w, w))
        loss.backward()
        optimizer.step()
        return loss

    x = np.ones((32, 32))
    held = []
    tracemalloc.start()
    try:
        for calls in (20, 100, 100, 100):
            for _ in range(calls):
                step(x)
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    # Not one array of 100 calls; free lists fill up, more and more slowly.
    assert min(b - a for a, b in itertools.pairwise(held)) < w.data.nbytes


def peak(step, state, calls):
    """Return the most memory that a step holds, state and buffers included."""
    tracemalloc.start()
    try:
        for given in calls[:4]:
            step(*given)
        gc.collect()
        tracemalloc.reset_peak()
        step(*calls[4])
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def images():
    """Return what makes a step over images, with its state; and the arguments of five calls."""

    def make():
        rng = np.random.default_rng(0)
        state = [tg.param(rng.normal(size=s, scale=0.2)) for s in [(8, 3, 3, 3), (8, 1, 1)]]
        optimizer = tg.SGD(state, lr=0.1)

        def step(x):
            optimizer.zero_grad()
            loss = tg.mean(tg.max_pool2d(tg.relu(tg.conv2d(x, state[0]) + state[1]), 2))
            loss.backward()
            optimizer.step()
            return loss

        return step, state

    return make, [(np.random.default_rng(i).normal(size=(8, 3, 18, 18)),) for i in range(5)]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("steps", [lambda: attention(np.float32, tg.Adam), images])
def test_a_compiled_step_takes_no_more_memory_than_the_eager_one(steps):
    make, calls = steps()
    for _ in range(2):  # the first time caches fill up
        step, state = make()
        eager = peak(step, state, calls)
        step, state = make()
        compiled = tg.compile(step)
        found = peak(compiled, state, calls)
    assert found < eager
    assert "ran in native" in compiled.explain()


def test_what_a_step_was_recorded_with_is_let_go_of():
    w, x = tg.param(np.ones(50_000)), np.ones(50_000)

    @tg.compile
    def step(x):
        w.assign((w * x).detach())
        return tg.sum(w)

    tracemalloc.start()
    try:
        for _ in range(3):
            step(x.copy())
        gc.collect()
        # The parameter's new array; and what the plan may have as a buffer.
        assert tracemalloc.get_traced_memory()[0] < 2.5 * x.nbytes
    finally:
        tracemalloc.stop()


def test_relu_is_written_over_what_it_is_given():
    w = tg.param(np.ones((64, 512)))

    @tg.compile
    def step(x):
        w.grad = None
        tg.sum(tg.relu(w * x) ** 2).backward()

    for _ in range(3):
        step(3.0)
    (line,) = [line for line in step.source().splitlines() if " clip(" in line]
    (product,) = [line for line in step.source().splitlines() if "= multiply(v0, v1" in line]
    assert re.search(r"out=(b\d)", line)[1] == re.search(r"(b\d)\)", product)[1]
    np.testing.assert_array_equal(w.grad, np.full((64, 512), 18.0))


# ------------------------------------------------------------------ less work


def test_what_is_computed_twice_is_computed_once_and_what_nobody_reads_not_at_all():
    w = tg.param(np.ones(3))

    @tg.compile
    def step(x):
        w.grad = None
        np.cos(w * x)
        loss = tg.sum(np.sin(w * x) * tg.exp(w * x))
        loss.backward()

    for _ in range(3):
        step(np.ones(3))
    source = step.source()
    assert source.count(" sin(") == source.count(" exp(") == 1
    assert source.count("cos(") == 1  # the slope of the sine
    assert source.count("multiply(v0, v1") + source.count("multiply(v1, v0") == 1
    assert "def plan(" in source and "test_plan.py" in source


def test_gelu_and_its_gradient_share_their_tanh():
    w = tg.param(np.linspace(-2.0, 2.0, 5))

    @tg.compile
    def step(x):
        w.grad = None
        tg.sum(tg.gelu(w * x)).backward()

    for _ in range(3):
        step(np.ones(5))
    assert step.source().count("tanh(") == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_product_of_what_was_computed_twice_is_rounded_as_in_a_real_call(dtype):
    w = tg.param(np.random.default_rng(0).normal(size=(67, 129)).astype(dtype))

    @tg.compile
    def f(x):
        a, b = tg.sin(w * x), tg.sin(w * x)
        return a @ b.T, a @ a.T

    real = f(1.0)
    for _ in range(3):
        for got, want in zip(f(1.0), real, strict=True):
            np.testing.assert_array_equal(got.data, want.data)


def test_what_may_fail_is_run_though_nobody_reads_it():
    @tg.compile
    def f(a):
        return tg.sum(a), np.linalg.inv(a)[0, 0] * 0.0 + tg.sum(a)

    for _ in range(3):
        f(np.eye(2))
    with pytest.raises(np.linalg.LinAlgError):
        f(np.zeros((2, 2)))


def test_a_plan_is_a_function_of_arrays():
    """The contract of an engine: outputs and updates, of the values of the leaves in order."""
    w, found = tg.param([1.0, 2.0]), []
    arguments = (tuple, (flattened([2.0], "args", found), flattened({}, "kwargs", found)))
    trace = Trace(lambda x: w * x, arguments, [value for _, value in found], deque())
    plan = registry.engine("native").whole(trace.recording, trace.state)
    values = [np.array([1.0, 2.0]), np.array(5.0)]
    outputs, updates = plan.run(values)
    np.testing.assert_array_equal(outputs[0], [5.0, 10.0])
    assert updates == []
