"""Threads, tasks and generators do not see each other's tape, settings or report."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
import re
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import tapegraph as tg
from tapegraph import fallback, lowering


@pytest.fixture
def restless():
    """Switch threads as often as Python can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def test_recording_goes_on_while_another_thread_imports_asyncio(monkeypatch):
    monkeypatch.setitem(sys.modules, "asyncio", types.ModuleType("asyncio"))  # it has only begun
    x = tg.param(3.0)
    (x * x).backward()
    assert x.grad == 6.0


def together(*functions):
    """Run each function in a thread of its own, all starting at once; return their results."""
    barrier = threading.Barrier(len(functions))

    def run(function):
        barrier.wait()
        return function()

    with ThreadPoolExecutor(len(functions)) as pool:
        return [f.result() for f in [pool.submit(run, function) for function in functions]]


def records():
    return (tg.param(1.0) * 2.0).requires_grad


def train(seed):
    """Train a small network and return every number it saw."""
    tg.set_backend("native")
    rng = np.random.default_rng(seed)
    data, targets = rng.normal(size=(16, 5)), rng.integers(0, 3, size=16)
    params = [tg.param(rng.normal(size=shape)) for shape in ((5, 8), (8,), (8, 3), (3,))]
    w1, b1, w2, b2 = params
    optimizer, losses = tg.SGD(params, lr=0.1), []
    for _ in range(60):
        tg.zero_grad()
        loss = tg.softmax_crossentropy(tg.tanh(data @ w1 + b1) @ w2 + b2, targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    return np.concatenate([losses, *(p.data.ravel() for p in params)]).tobytes()


# -- threads -----------------------------------------------------------------------------------


def test_8_threads_training_get_the_numbers_of_each_alone(restless):
    alone = [train(seed) for seed in range(8)]
    assert together(*(functools.partial(train, seed) for seed in range(8))) == alone


def test_concurrent_backward_on_a_shared_leaf_loses_no_update(restless):
    # Large enough for NumPy to let other threads run while it adds.
    shared = tg.param(np.zeros(200_000))

    def add_up(k):
        tg.set_backend("native")
        for _ in range(20):
            (shared * float(k)).backward()

    together(*(functools.partial(add_up, k) for k in range(1, 9)))
    np.testing.assert_array_equal(shared.grad, np.full(200_000, 20.0 * 36))


def test_concurrent_backward_through_one_graph(restless):
    x = tg.param(np.arange(4.0))
    y = (tg.sin(x) * x).sum()

    def add_up():
        tg.set_backend("native")
        for _ in range(100):
            y.backward()

    together(*[add_up] * 8)
    np.testing.assert_allclose(x.grad, 800 * (np.sin(x.data) + x.data * np.cos(x.data)))


def test_first_gradients_of_many_leaves_are_not_lost(restless):
    for _ in range(50):
        x = tg.param(1.0)
        x.grad = 0.0
        x.zero_grad()

        def read_or_add(x=x):
            (x * 1.0).backward()
            return x.grad

        together(*[read_or_add] * 4)
        assert x.grad == 4.0


def test_threads_have_tapes_of_their_own():
    y = tg.param(1.0) * 2.0

    def inside():
        before = len(tg.tape())
        z = tg.param(1.0) * 2.0 * 3.0
        return before, [e.op for e in tg.tape()], z

    before, ops, _ = together(inside)[0]
    assert before == 0
    assert ops == ["param", "scalar", "mul", "scalar", "mul"]
    assert len(tg.tape()) == 3
    assert y.requires_grad


def test_reset_in_a_thread_clears_only_what_it_recorded():
    x = tg.param(2.0)
    y = x * x

    def inside():
        z = y * 3.0
        tg.tape_reset()
        return z

    z = together(inside)[0]
    y.backward()
    assert x.grad == 4.0
    with pytest.raises(RuntimeError, match="tape_reset"):
        z.backward()


def test_zero_grad_without_arguments_keeps_to_this_threads_parameters():
    mine = tg.param(1.0)
    mine.sum().backward()

    def inside():
        other = tg.param(1.0)
        other.sum().backward()
        tg.zero_grad()
        return float(other.grad)

    assert together(inside) == [0.0]
    assert mine.grad == 1.0


def test_settings_of_one_thread_are_not_seen_by_another():
    entered, checked = threading.Event(), threading.Event()

    def setter():
        tg.set_backend("native")
        (tg.param(1.0) * 2.0).backward()
        with tg.no_grad():
            entered.set()
            checked.wait(10)
            return tg.get_backend(), records()

    def observer():
        entered.wait(10)
        seen = tg.get_backend(), records(), tg.last_backward()
        checked.set()
        return seen

    inside, outside = together(setter, observer)
    assert inside == ("native", False)
    assert outside == (tg.get_backend(), True, None)


# -- asyncio tasks -----------------------------------------------------------------------------


def test_tasks_have_tapes_of_their_own_even_after_the_parent_recorded():
    async def child(length):
        results = []
        for _ in range(length):
            results.append(tg.param(1.0) * 2.0)
            await asyncio.sleep(0)
        return len(tg.tape())

    async def parent():
        y = tg.param(1.0) * 2.0
        lengths = await asyncio.gather(child(1), child(3), child(5))
        return lengths, len(tg.tape()), y

    outer = tg.param(1.0)
    lengths, mine, _ = asyncio.run(parent())
    assert lengths == [3, 9, 15]
    assert mine == 3
    assert len(tg.tape()) == 1
    assert outer.requires_grad


def test_reset_in_a_task_leaves_its_parent():
    async def child():
        tg.tape_reset()

    async def parent():
        x = tg.param(3.0)
        y = x * x
        await asyncio.create_task(child())
        y.backward()
        return float(x.grad)

    assert asyncio.run(parent()) == 6.0


def test_settings_of_one_task_are_not_seen_by_another():
    async def setter(entered, leave):
        tg.set_backend("native")
        (tg.param(1.0) * 2.0).backward()
        with tg.no_grad():
            entered.set()
            await leave.wait()
            return tg.get_backend(), records()

    async def parent():
        entered, leave = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(setter(entered, leave))
        await entered.wait()
        seen = tg.get_backend(), records(), tg.last_backward()
        leave.set()
        return await task, seen

    inside, outside = asyncio.run(parent())
    assert inside == ("native", False)
    assert outside == (tg.get_backend(), True, None)


def test_tasks_started_under_no_grad_inherit_it():
    async def child():
        return records()

    async def parent():
        with tg.no_grad():
            return await asyncio.gather(child(), asyncio.to_thread(records))

    assert asyncio.run(parent()) == [False, False]


def test_interleaved_training_tasks_get_the_numbers_of_each_alone():
    async def descend(rate):
        x = tg.param(1.0)
        optimizer = tg.SGD([x], lr=rate)
        with tg.use_backend("native"):
            for _ in range(20):
                tg.zero_grad()
                y = x * x
                await asyncio.sleep(0)
                y.backward()
                optimizer.step()
        return x.item()

    async def parent(rates):
        return await asyncio.gather(*map(descend, rates))

    rates = [0.1, 0.2, 0.3]
    assert asyncio.run(parent(rates)) == [asyncio.run(descend(rate)) for rate in rates]


# -- processes ---------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_child_forked_while_other_threads_hold_every_lock_goes_on(run_python):
    done = run_python(
        """
        import os, threading, warnings
        import numpy as np
        import tapegraph as tg
        from tapegraph import interrupts

        held, forked = threading.Event(), threading.Event()

        def hold():
            with contextlib.ExitStack() as stack:
                for lock in list(interrupts._locks):
                    stack.enter_context(lock.held)
                held.set()
                forked.wait()

        import contextlib
        tg.fallback, tg.lowering.cache_info()
        assert len(interrupts._locks) >= 5, list(interrupts._locks)
        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        warnings.simplefilter("ignore")  # Python's own, about forking beside threads
        child = os.fork()
        if child == 0:
            x = tg.param([1.0, 2.0])
            table = tg.param(np.ones((4, 2)))
            with tg.use_backend("auto"):
                (tg.sum(x * x) + tg.sum(table[[1, 1]])).backward()
            right = x.grad.tolist() == [2.0, 4.0] and table.grad[1].tolist() == [2.0, 2.0]
            tg.lowering.cache_clear()
            os._exit(0 if right else 1)
        import time
        for _ in range(200):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                break
            time.sleep(0.05)
        else:
            os.kill(child, 9)
            status = "hangs"
        forked.set()
        print(status)
        """
    )
    assert done.stdout == "0\n", done.stderr


def test_every_lock_of_the_library_is_renewed_in_a_forked_child():
    sources = [Path(tg.__file__).parent, *(Path(m.__file__).parent for m in (fallback, lowering))]
    made = {
        path.name
        for folder in sources
        for path in folder.rglob("*.py")
        if re.search(r"threading\.(R?Lock|Condition|Semaphore)\(", path.read_text())
    }
    assert made == {"interrupts.py"}


# -- generators --------------------------------------------------------------------------------


@contextlib.contextmanager
def own_manager(make):
    with make():
        yield


@contextlib.contextmanager
def own_stack(make):
    with contextlib.ExitStack() as stack:
        stack.enter_context(own_manager(make))
        yield


WAYS = {
    "with": lambda make: make(),
    "contextmanager": own_manager,
    "contextmanager around an ExitStack": own_stack,
}
native = functools.partial(tg.use_backend, "native")
SETTINGS = {"no_grad": (tg.no_grad, records), "use_backend": (native, tg.get_backend)}


@pytest.fixture(params=SETTINGS)
def setting(request):
    """A scope, a probe of it, and what the probe says outside and inside."""
    tg.set_backend("auto")
    make, probe = SETTINGS[request.param]
    outside = probe()
    with make():
        inside = probe()
    assert inside != outside
    assert probe() == outside
    return make, probe, outside, inside


@pytest.mark.parametrize("way", WAYS)
def test_scope_by_way_of_a_context_manager(setting, way):
    make, probe, outside, inside = setting
    with WAYS[way](make):
        assert probe() == inside
    assert probe() == outside


def test_scope_on_an_exit_stack(setting):
    make, probe, outside, inside = setting
    with contextlib.ExitStack() as stack:
        stack.enter_context(make())
        assert probe() == inside
    assert probe() == outside


@pytest.mark.parametrize("way", WAYS)
def test_scope_in_a_generator_holds_until_it_leaves_the_block(setting, way):
    """As a fixture means it: from its yield to its end, the caller runs inside."""
    make, probe, outside, inside = setting

    def generator():
        with WAYS[way](make):
            for _ in range(3):
                yield probe()
        yield probe()

    running = generator()
    for _ in range(3):
        assert next(running) == inside
        assert probe() == inside
    assert next(running) == outside
    assert probe() == outside


def test_scope_of_a_generator_ends_when_it_is_closed(setting):
    make, probe, outside, inside = setting

    def generator():
        with contextlib.ExitStack() as stack:
            stack.enter_context(make())
            yield probe()

    running = generator()
    assert next(running) == inside
    assert probe() == inside
    running.close()
    assert probe() == outside


@pytest.fixture
def quiet_fixture():
    with tg.no_grad(), tg.use_backend("native"):
        yield


def test_scope_of_a_fixture_holds_in_its_test(quiet_fixture):
    assert not records()
    assert tg.get_backend() == "native"


def test_scopes_of_interleaved_generators_end_each_for_itself(setting):
    make, probe, outside, inside = setting

    def scoped():
        with make():
            yield
        yield

    a, b = scoped(), scoped()
    seen = []
    for step in (a, b, a, b):
        next(step)
        seen.append(probe())
    assert seen == [inside, inside, inside, outside]


def test_decorated_generators_do_not_see_each_other(setting):
    make, probe, outside, inside = setting

    @make()
    def scoped():
        yield probe()
        yield probe()

    def free():
        while True:
            yield probe()

    a, b, c = scoped(), scoped(), free()
    seen = [(next(g), probe()) for g in (a, c, b, c, a, c, b, c)]
    assert seen == [(inside if x else outside, outside) for x in (1, 0, 1, 0, 1, 0, 1, 0)]


def test_generator_called_in_a_scope_sees_it(setting):
    make, probe, outside, inside = setting

    def generator():
        while True:
            yield probe()

    running = generator()
    assert next(running) == outside
    with make():
        assert next(running) == inside
    assert next(running) == outside


def test_scope_of_an_async_generator_holds_until_it_leaves_the_block(setting):
    make, probe, outside, inside = setting

    async def generator():
        with make():
            yield probe()
            await asyncio.sleep(0)
            yield probe()

    async def consume():
        return [(seen, probe()) async for seen in generator()], probe()

    assert asyncio.run(consume()) == ([(inside, inside)] * 2, outside)


def test_scope_by_an_async_context_manager(setting):
    make, probe, outside, inside = setting

    @contextlib.asynccontextmanager
    async def manager():
        with make():
            yield

    async def use():
        async with manager():
            await asyncio.sleep(0)
            seen = probe()
        return seen, probe()

    assert asyncio.run(use()) == (inside, outside)


def test_scopes_left_out_of_order():
    first, second = tg.no_grad(), tg.use_backend("native")
    tg.set_backend("auto")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert records()
    assert tg.get_backend() == "native"
    second.__exit__(None, None, None)
    assert tg.get_backend() == "auto"


# -- no_grad as a decorator --------------------------------------------------------------------


@pytest.fixture(params=["@tg.no_grad()", "@tg.no_grad", "tg.no_grad(fn)"])
def decorate(request):
    return tg.no_grad() if request.param == "@tg.no_grad()" else tg.no_grad


def test_decorated_function(decorate):
    def f(a, *, b):
        """Add."""
        return (tg.param(a) + b).requires_grad

    quiet = decorate(f)
    assert quiet(1.0, b=2.0) is False
    assert records()
    assert (quiet.__name__, quiet.__doc__) == ("f", "Add.")


def test_decorated_method(decorate):
    class Model:
        predict = decorate(lambda self, x: (self, x.requires_grad, (x * 2.0).requires_grad))

    model, x = Model(), tg.param(1.0)
    assert model.predict(x) == (model, True, False)


def test_decorated_function_that_raises(decorate):
    @decorate
    def fail():
        raise KeyError("boom")

    with pytest.raises(KeyError):
        fail()
    assert records()


def test_decorated_recursion(decorate):
    @decorate
    def count(n):
        return n if n == 0 else count(n - 1) + records()

    assert count(5) == 0
    assert records()


def test_decorated_generator(decorate):
    @decorate
    def generator():
        got = yield records()
        yield (got, records())
        return "done"

    assert inspect.isgeneratorfunction(generator)
    running = generator()
    assert next(running) is False
    assert records()
    assert running.send("sent") == ("sent", False)
    assert records()
    with pytest.raises(StopIteration) as stop:
        next(running)
    assert stop.value.value == "done"


def test_decorated_generator_is_thrown_into_and_closed(decorate):
    seen = []

    @decorate
    def generator():
        try:
            try:
                yield
            except KeyError:
                seen.append(("thrown", records()))
            yield "caught"
        finally:
            seen.append(("closed", records()))

    running = generator()
    next(running)
    assert running.throw(KeyError("boom")) == "caught"
    assert records()
    running.close()
    assert seen == [("thrown", False), ("closed", False)]
    assert records()


def test_decorated_coroutine(decorate):
    @decorate
    async def coroutine():
        await asyncio.sleep(0)
        return records()

    async def both():
        task = asyncio.create_task(coroutine())
        await asyncio.sleep(0)
        return records(), await task, await coroutine(), records()

    assert inspect.iscoroutinefunction(coroutine)
    assert asyncio.run(both()) == (True, False, False, True)


def test_an_asynchronous_generator_is_not_decorated(decorate):
    async def generator():
        yield records()

    with pytest.raises(TypeError, match="Write the with block inside it"):
        decorate(generator)


def test_nested_no_grad_ends_with_the_outermost():
    with tg.no_grad():
        with tg.no_grad():
            assert not records()
        assert not records()
    assert records()


def test_one_no_grad_object_can_be_used_again_and_nested():
    quiet = tg.no_grad()
    for _ in range(2):
        with quiet, quiet:
            assert not records()
        assert records()


def test_one_no_grad_object_shared_by_generators():
    quiet = tg.no_grad()

    def generator():
        with quiet:
            yield records()
            yield records()
        yield records()

    a, b = generator(), generator()
    seen = [(next(g), records()) for g in (a, b, a, a, b, b)]
    assert seen == [(False, False)] * 5 + [(True, True)]


def test_one_no_grad_object_shared_by_threads(restless):
    quiet = tg.no_grad()
    inside = threading.Barrier(4)

    def work():
        for _ in range(20):
            with quiet:
                inside.wait(10)
                assert not records()
            assert records()

    together(*[work] * 4)
    assert records()


def test_leaving_a_block_that_is_not_the_innermost_takes_back_its_own_value():
    one, two = tg.use_backend("native"), tg.use_backend("auto")
    one.__enter__()
    two.__enter__()
    one.__exit__(None, None, None)  # as generators that interleave do
    assert tg.get_backend() == "auto"
    two.__exit__(None, None, None)


def test_a_condition_alone_needs_no_gradient():
    assert not tg.where(tg.param([1.0, 0.0]), 1.0, 2.0).requires_grad
