"""`scan` gives what the same calls give one by one, in each engine; so does what it leaves."""

from __future__ import annotations

import gc
import itertools
import threading
import tracemalloc
from functools import partial

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.compiling import programs
from tests.compiling.beside import agree, standing, taken
from tests.quick import thinned

N = 21  # calls: real ones are among them, and a last part of a loop


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def network(kind=tg.Adam, **options):
    """Return the maker of a step of a small network, and its state."""

    def make():
        rng = np.random.default_rng(0)
        w, b = tg.param(rng.normal(size=(3, 2))), tg.param(np.zeros(2))
        optimizer = kind([w, b], lr=0.05, **options)

        def step(x, y, scale=1.0):
            optimizer.zero_grad()
            loss = tg.mean((tg.tanh(x @ w + b) - y) ** 2) * scale
            loss.backward()
            optimizer.step()
            return {"loss": loss, "w": w * 1.0, "name": "step"}

        return step, [w, b, optimizer]

    return make


def data(rng, n=N, rows=4):
    return rng.normal(size=(n, rows, 3)), rng.normal(size=(n, rows, 2))


def rows_of(results, place):
    """Return one call's part of what a scan has stacked."""
    if isinstance(results, dict):
        return {key: rows_of(part, place) for key, part in results.items()}
    if isinstance(results, list) and results and isinstance(results[0], tg.Value):
        return results[place]
    if isinstance(results, (list, tuple)):
        return type(results)(rows_of(part, place) for part in results)
    if isinstance(results, tg.Tensor):
        return tg.tensor(results.numpy()[place])
    if not isinstance(results, np.ndarray):
        return results
    return results[place] if results.ndim > 1 else results[place].item()


def one_by_one(make, calls, engine="native", call=None):
    """Return what eager calls return and leave."""
    tg.random.seed(0)
    with tg.use_backend(engine):
        step, state = make()
        results = [taken((call or step)(*args)) for args in calls]
    return results, standing(state)


def scanned(make, engine, *args, **options):
    """Return what a scan returns and leaves, and the compiled step."""
    length = options.pop("length", None)
    tg.random.seed(0)
    with tg.use_backend(engine):
        step, state = make()
        compiled = tg.compile(step, **options)
        results = compiled.scan(*args, length=length)
    return results, standing(state), compiled


def check(make, engine, calls, *args, **options):
    want, left = one_by_one(make, calls)
    results, now, compiled = scanned(make, engine, *args, **options)
    for place, one in enumerate(want):
        agree(taken(rows_of(results, place)), one, engine, f"call {place}: ")
    agree(now, left, engine, "state: ")
    return compiled


@pytest.fixture(params=["native", "tensorflow"])
def engine(request):
    if request.param == "tensorflow":
        pytest.importorskip("tensorflow")
    return request.param


# ------------------------------------------------------------------ the same as calls


@pytest.mark.parametrize(
    "kind", [partial(tg.SGD, momentum=0.9), tg.Adam, tg.Lion], ids=["sgd", "adam", "lion"]
)
@pytest.mark.one_in(6, of="tensorflow")
def test_training_equals_the_same_calls(engine, kind, rng):
    x, y = data(rng)
    compiled = check(network(kind), engine, zip(x, y, strict=True), x, y)
    assert compiled.traces == 1 and f"ran in {engine}" in compiled.explain()


def test_a_second_scan_goes_on_and_single_calls_come_between(engine, rng):
    x, y = data(rng, 60)
    make = network()
    want, left = one_by_one(make, zip(x, y, strict=True))
    with tg.use_backend(engine):
        step, state = make()
        step = tg.compile(step)
        losses = [*step.scan(x[:20], y[:20])["loss"].numpy()]
        losses += [step(x[i], y[i])["loss"].item() for i in range(20, 23)]
        state[0].assign(state[0].numpy() * 1.0)  # read and written between scans
        losses += [*step.scan(x[23:], y[23:])["loss"].numpy()]
    agree(np.array(losses), np.array([one["loss"] for one in want]), engine)
    agree(standing(state), left, engine)


def test_schedules_go_on_from_call_to_call(engine, rng):
    x, y = data(rng)
    schedule = tg.optim.cosine(0.1, 30) if hasattr(tg.optim, "cosine") else None
    rate = schedule or (lambda step: 0.1 / (1 + step))

    def make():
        w = tg.param(np.ones((3, 2)))
        optimizer = tg.SGD([w], lr=rate)

        def step(x, y):
            for _ in range(2):  # each of two steps in a call has a rate of its own
                optimizer.zero_grad()
                tg.sum((x @ w - y) ** 2).backward()
                optimizer.step()
            return tg.sum(w)

        return step, [w, optimizer]

    check(make, engine, zip(x, y, strict=True), x, y)


def test_random_numbers_and_dropout_draw_the_same_stream(engine, rng):
    x, y = data(rng)

    def make():
        step, state = network()()

        def noisy(x, y):
            x = tg.dropout(x, 0.5) + tg.random.normal(size=(4, 3))
            return step(x, y)

        return noisy, state

    want, left = one_by_one(make, zip(x, y, strict=True))
    stream = tg.random.get_state()
    results, now, _ = scanned(make, engine, x, y)
    agree(results["loss"].numpy(), np.array([one["loss"] for one in want]), engine)
    agree(now, left, engine)
    assert tg.random.get_state() == stream


def test_gradients_that_add_up_are_carried(engine, rng):
    x, _ = data(rng)

    def make():
        w = tg.param(np.ones(3))

        def step(x):
            tg.sum(tg.sin(x @ w)).backward()
            return tg.sum(w.grad)

        return step, [w]

    check(make, engine, [(row,) for row in x], x)


def test_a_run_after_which_the_program_is_another_is_made_by_itself(engine, rng):
    """The program of a call that finds no gradient is not that of a call that adds to one."""
    x = rng.normal(size=(12, 3))
    w = tg.param(np.ones(3))

    @partial(tg.compile, verify_every=None)
    def step(x):
        tg.sum(tg.sin(x @ w)).backward()

    with tg.use_backend(engine):
        for _ in range(3):
            w.grad = None
            step(x[0])
        w.grad = None
        step.scan(x)
    np.testing.assert_allclose(w.grad, np.cos(x.sum(axis=1)) @ x, rtol=1e-12)


def test_clipping_is_a_part_of_it(engine, rng):
    x, y = data(rng)

    def make():
        w = tg.param(np.ones((3, 2)))
        optimizer = tg.SGD([w], lr=0.5)

        def step(x, y):
            optimizer.zero_grad()
            tg.sum((x @ w - y) ** 2).backward()
            norm = tg.clip_grad_norm([w], 1.0)
            optimizer.step()
            return norm

        return step, [w, optimizer]

    check(make, engine, zip(x, y, strict=True), x, y)


def test_tables_that_change_by_their_rows(engine, rng):
    rows = rng.integers(0, 50, (N, 4))

    def make():
        table = tg.param(np.arange(100.0).reshape(50, 2))
        optimizer = tg.SGD([table], lr=0.1)

        def step(rows):
            optimizer.zero_grad()
            tg.sum(table[rows] ** 2).backward()
            optimizer.step()
            return tg.sum(table[rows])

        return step, [table, optimizer]

    check(make, engine, [(row,) for row in rows], rows)


def test_values_are_carried_and_listed(rng):
    x = rng.normal(size=N)

    def make():
        w = tg.Value(0.5)

        def step(x):
            w.grad = 0.0
            loss = (w * x - 1.0) ** 2
            loss.backward()
            w.data -= 0.1 * w.grad
            return loss

        return step, [w]

    want, left = one_by_one(make, [(float(number),) for number in x])
    results, now, _ = scanned(make, "native", tg.each(x))
    assert [value.data for value in results] == want
    agree(now, left, "native")


def test_second_derivatives_in_a_step(engine, rng):
    x, _ = data(rng, 12)

    def make():
        w = tg.param(np.linspace(0.1, 0.3, 3))

        def step(x):
            hessian = tg.hessian(lambda v: tg.sum(tg.sin(x @ v)))(w)
            w.assign((w - 0.01 * tg.sum(hessian, axis=0)).detach())
            return hessian

        return step, [w]

    check(make, engine, [(row,) for row in x], x)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-4), (np.complex128, 1e-9)])
def test_float32_and_complex_state(engine, dtype, tolerance, rng):
    x = rng.normal(size=(N, 3)).astype(dtype)

    def make():
        w = tg.param(np.ones(3, dtype))
        optimizer = tg.SGD([w], lr=0.05)

        def step(x):
            optimizer.zero_grad()
            loss = tg.sum(tg.abs(x * w - 1.0) ** 2)
            loss.backward()
            optimizer.step()
            return w * 1.0

        return step, [w, optimizer]

    want, left = one_by_one(make, [(row,) for row in x])
    results, now, _ = scanned(make, engine, x)
    tolerance = 0 if engine == "native" else tolerance
    np.testing.assert_allclose(results.numpy(), want, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(now[0][1], left[0][1], rtol=tolerance, atol=tolerance)


# ------------------------------------------------------------------ arguments and results


@pytest.mark.one_in(2, of="tensorflow", start=1)
def test_numbers_are_the_same_in_every_call_or_one_each(engine, rng):
    x, y = data(rng)
    scales = np.linspace(0.5, 2.0, N)
    make = network()
    check(make, engine, [(*xy, 0.5) for xy in zip(x, y, strict=True)], x, y, 0.5)
    calls = [(*xy, float(s)) for *xy, s in zip(x, y, scales, strict=True)]
    compiled = check(make, engine, calls, x, y, tg.each(scales))
    assert compiled.traces == 1


def test_ints_one_each_are_traces_of_their_own(rng):
    x = rng.normal(size=(8, 3))
    step = tg.compile(lambda x, k: tg.sum(x) * k)
    got = step.scan(x, tg.each([1, 1, 1, 1, 2, 2, 2, 2]))
    np.testing.assert_allclose(got.numpy(), x.sum(axis=1) * np.repeat([1, 2], 4), rtol=1e-15)
    assert step.traces == 2


def test_trees_keyword_arguments_constant_tensors_and_float16(rng):
    x = rng.normal(size=(6, 3))
    step = tg.compile(lambda batch, *, b, c, d: batch["a"][0] * b + c + d)
    got = step.scan({"a": [x]}, b=tg.tensor(x), c=x[:, 0], d=x.astype(np.float16))
    want = x * x + x[:, :1] + x.astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(got.numpy(), want)


def test_length_where_there_is_no_array(engine):
    w = tg.param(1.0)
    step = tg.compile(lambda: w.assign((w * 1.5).detach()))
    with tg.use_backend(engine):
        assert step.scan(length=10) is None
    assert w.item() == 1.5**10


def test_a_parameter_and_a_plain_string_are_the_same_in_every_call(rng):
    p = tg.param(np.array([2.0, 3.0]))
    step = tg.compile(lambda x, p, how: tg.sum(x * p) if how == "sum" else x)
    x = rng.normal(size=(5, 2))
    np.testing.assert_allclose(step.scan(x, p, "sum").numpy(), x @ [2.0, 3.0], rtol=1e-14)


@pytest.mark.parametrize(
    ("args", "options", "message"),
    [
        ((np.ones(3), np.ones(4)), {}, r"3 for args\[0\], 4 for args\[1\]"),
        ((1.0, 2.0), {}, "length=n"),
        ((np.float64(1.0), np.ones(())), {}, "shape \\(\\)"),
        ((np.ones(3), 1.0), {"length": 4}, "4 for length"),
        ((np.ones((0, 2)), 1.0), {}, "0 calls"),
    ],
)
def test_bad_arguments_are_refused_before_the_first_call(args, options, message):
    calls = []
    step = tg.compile(lambda x, y: calls.append(1))
    with pytest.raises(ValueError, match=message):
        step.scan(*args, **options)
    assert not calls
    with pytest.raises(TypeError, match="sequence of numbers"):
        tg.each("abc")


def test_results_that_cannot_be_stacked_are_refused():
    step = tg.compile(lambda x, k: x[:k])
    with pytest.raises(ValueError, match=r"shape \(3,\).*from call 4"):
        step.scan(np.ones((8, 5)), tg.each([2, 2, 2, 2, 3, 3, 3, 3]))


# ------------------------------------------------------------------ hazards


def masked(calls, at, number):
    """Return a step whose gradient is 0 * inf or 0 * NaN, a strong zero, in one of its calls."""
    x = np.ones((calls, 3))
    x[at, 1] = number

    def make():
        w = tg.param(np.array([1.0, 2.0, 3.0]))
        optimizer = tg.SGD([w], lr=0.01)

        def step(x):
            optimizer.zero_grad()
            loss = tg.sum(np.where(x > 0, tg.sqrt(x * w) ** 2, w * 0.5))
            loss.backward()
            optimizer.step()
            return loss

        return step, [w, optimizer]

    return make, x


@pytest.mark.parametrize(("at", "number"), [(9, 0.0), (5, np.nan), (10, np.nan), (19, np.nan)])
@pytest.mark.one_in(6, of="tensorflow", start=2)
def test_a_gradient_that_held_a_nan_in_one_call(engine, at, number):
    make, x = masked(N, at, number)
    compiled = check(make, engine, [(row,) for row in x], x)
    assert f"ran in {engine}" in compiled.explain()


def test_gradients_that_hold_a_nan_in_every_call(engine):
    make, x = masked(N, slice(None), np.nan)
    compiled = check(make, engine, [(row,) for row in x], x)
    if engine == "tensorflow":
        assert "only the native engine keeps zeros" in compiled.explain()


@pytest.mark.parametrize("at", thinned([0, 1, 2, 6, 13, 20], 2))
def test_an_error_in_call_k_leaves_the_state_of_the_calls_before(engine, at, rng):
    rows = rng.integers(0, 3, N)
    rows[at] = 99

    def make():
        w = tg.tensor(np.ones(3))

        def step(row):
            picked = w[row] * tg.random.uniform()
            w.assign(w + picked)
            return picked

        return step, [w]

    want, left = one_by_one(make, [(row,) for row in rows[:at]])
    stream = tg.random.get_state()
    tg.random.seed(0)
    with tg.use_backend(engine):
        step, state = make()
        with pytest.raises(IndexError) as caught:
            tg.compile(step).scan(rows)
    assert any(f"call {at} of a scan of {N}" in note for note in notes(caught.value))
    agree(standing(state), left, engine)
    assert tg.random.get_state() == stream


def notes(error):
    return getattr(error, "__notes__", error.args)  # before Python 3.11


def test_an_exception_of_an_operation_of_the_users_in_call_k():
    class Full(Exception):
        pass

    count = itertools.count(1)

    def forward(x):
        if next(count) > 9:
            raise Full("no more")
        return x * 2.0

    op = tg.defop(forward, vjp=lambda g, y, x: 2.0 * g, name="scan_test_full")
    w = tg.tensor(1.0)

    @tg.compile
    def step(x):
        w.assign(op(w) + x)

    with pytest.raises(Full) as caught:
        step.scan(np.zeros(20))
    assert any("of a scan of 20" in note for note in notes(caught.value))
    assert w.item() in (2.0**7, 2.0**8, 2.0**9)  # the plan's own trial of it counts too


def test_an_interrupt_leaves_whole_calls(engine, monkeypatch):
    from tapegraph.compiling.scan import Results

    x = np.ones((200, 3))

    def make():
        w, count = tg.tensor(np.zeros(3)), tg.tensor(0.0)

        def step(x):
            w.assign(w + x)
            count.assign(count + 1.0)
            return count

        return step, [w, count]

    step, (w, count) = make()
    add = Results.add

    def interrupted(self, *args):
        add(self, *args)
        if self.count > 50:
            raise KeyboardInterrupt

    monkeypatch.setattr(Results, "add", interrupted)
    with tg.use_backend(engine), pytest.raises(KeyboardInterrupt):
        tg.compile(step).scan(x)
    assert count.item() > 50 and (w.numpy() == count.item()).all()


def test_a_closure_that_changes_between_scans_takes_a_new_trace(engine, rng):
    x = rng.normal(size=(10, 3))
    scale = 2

    def step(x):
        return tg.sum(x) * scale

    step = tg.compile(step)
    with tg.use_backend(engine):
        for scale in (2, 3, 2):
            np.testing.assert_allclose(step.scan(x).numpy(), x.sum(axis=1) * scale, rtol=1e-12)
    assert step.traces == 2


@pytest.mark.parametrize(
    "every", ["doubling", *(pytest.param(n, marks=pytest.mark.thorough) for n in (3, 1, None))]
)
@pytest.mark.one_in(2, of="tensorflow", start=1)
def test_real_calls_come_as_often_as_in_single_calls(engine, every, rng):
    x, y = data(rng)

    def counting(count):
        step, _ = network()()

        def counted(*args):
            next(count)
            return step(*args)

        return tg.compile(counted, verify_every=every)

    check(network(), engine, zip(x, y, strict=True), x, y, verify_every=every)
    in_scan, in_calls = itertools.count(), itertools.count()
    with tg.use_backend(engine):
        counting(in_scan).scan(x, y)
        step = counting(in_calls)
        for args in zip(x, y, strict=True):
            step(*args)
    assert next(in_scan) == next(in_calls) < (N if every != 1 else N + 1)


def test_a_change_that_guards_cannot_see_is_found_by_a_real_call(engine):
    calls = itertools.count()

    def step(x):
        return x * (1.0 if next(calls) < 2 else 2.0)

    with tg.use_backend(engine), pytest.raises(tg.TraceMismatchError):
        tg.compile(step).scan(np.ones(20))


def test_a_scan_inside_a_compiled_function_is_a_part_of_it(engine, rng):
    x = rng.normal(size=(6, 4, 3))

    def make():
        w = tg.param(np.full(3, 0.5))
        inner = tg.compile(lambda x: tg.sum(tg.tanh(x @ w)))

        def step(x):
            w.grad = None
            losses = inner.scan(x)
            tg.sum(losses).backward()
            w.assign((w - 0.1 * w.grad).detach())
            return losses

        return step, [w]

    with tg.compile_disabled():
        want, left = one_by_one(make, [(row,) for row in (x, x + 1.0, x * 2.0, x)])
    with tg.use_backend(engine):
        step, state = make()
        step = tg.compile(step)
        for given, one in zip((x, x + 1.0, x * 2.0, x), want, strict=True):
            agree(taken(step(given)), one, engine)
    agree(standing(state), left, engine)


def test_a_scan_of_scans(engine, rng):
    x = rng.normal(size=(7, 3, 4))
    total = tg.tensor(0.0)

    @tg.compile
    def inner(x):
        total.assign(total + tg.sum(x))
        return total

    with tg.use_backend(engine):
        got = tg.compile(lambda x: inner.scan(x)).scan(x)
    want = np.cumsum(x.sum(axis=2).ravel()).reshape(7, 3)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-12, atol=1e-12)


def test_a_gradient_flows_through_a_scan_that_is_differentiated(rng):
    x = rng.normal(size=(5, 3))
    inner = tg.compile(lambda x, w: tg.sum(x * w) ** 2)
    w0 = np.array([0.5, -1.0, 2.0])
    step = tg.compile(lambda x: inner(x, tg.tensor(w0)))
    assert step.scan(x).shape == (5,)

    def loss(w):
        held = tg.compile(lambda row: tg.sum(row * w) ** 2)
        return tg.sum(held.scan(x))

    want = (2.0 * (x @ w0)[:, None] * x).sum(axis=0)
    np.testing.assert_allclose(np.asarray(tg.grad(loss)(w0)), want, rtol=1e-12)
    with pytest.raises(TypeError, match="with respect to which scan is differentiated"):
        tg.grad(lambda x: tg.sum(tg.compile(lambda row: tg.sum(row)).scan(x)))(x)


def test_eager_where_compiling_is_disabled(rng):
    x, y = data(rng)
    make = network()
    want, left = one_by_one(make, zip(x, y, strict=True))
    with tg.compile_disabled():
        results, now, compiled = scanned(make, "native", x, y)
    agree(results["loss"].detach().numpy(), np.array([one["loss"] for one in want]), "native")
    agree(now, left, "native")
    assert compiled.traces == 0


def test_threads_take_turns_call_by_call(engine):
    w = tg.tensor(0.0)
    step = tg.compile(lambda x: w.assign(w + x))
    with tg.use_backend(engine):
        threads = [threading.Thread(target=step.scan, args=(np.ones(50),)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert w.item() == 200.0


def test_what_a_scan_gives_is_nobody_elses(engine, rng):
    x = rng.normal(size=(30, 3))
    step = tg.compile(lambda x: (x * 1.0, x))
    with tg.use_backend(engine):
        first, same = step.scan(x)
        kept = first.numpy().copy()
        step.scan(x * 5.0)
        np.testing.assert_array_equal(first.numpy(), kept)
        x[:] = 0.0
    np.testing.assert_array_equal(same.numpy(), kept)


@pytest.mark.parametrize("runs", [3, 40])
def test_a_loop_of_xlas_has_room_for_no_more_than_may_be_held(runs, monkeypatch):
    pytest.importorskip("tensorflow")
    from tapegraph.lowering.steps import step as module

    monkeypatch.setattr(programs, "_MOST_BYTES", runs * 8 * 101)  # a row, and a result
    monkeypatch.setattr(module, "_ROOM", 1)
    rooms = []
    fed = module.Loop._fed

    def noted(loop, feeds, runs, room):
        rooms.append(room)
        return fed(loop, feeds, runs, room)

    monkeypatch.setattr(module.Loop, "_fed", noted)
    x = np.random.default_rng(0).normal(size=(300, 100))
    with tg.use_backend("tensorflow"):
        sums = tg.compile(lambda x: tg.sum(x), xla=True).scan(x)
    np.testing.assert_allclose(sums.numpy(), x.sum(axis=1), rtol=1e-12)
    assert rooms and max(rooms) <= 1 << (runs - 1).bit_length()


@pytest.mark.usefixtures("few_objects")
def test_memory_does_not_grow_with_the_length_beyond_arguments_and_results():
    w = tg.tensor(np.ones((64, 64)))

    @partial(tg.compile, verify_every=None)
    def step(x):
        noise = tg.random.normal(size=(64, 64))  # drawn call by call
        w.assign(w * 0.5 + noise)
        return tg.sum(w)

    peaks = []
    with tg.use_backend("native"):  # a loop of TensorFlow's is fed what a part of the calls draw
        step.scan(np.zeros(8))
        for n in (10, 200):
            gc.collect()
            tracemalloc.start()
            step.scan(np.zeros(n))
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert peaks[1] < peaks[0] + 300_000  # 190 draws more are 6 MB


def test_an_iterable_is_told_to_be_stacked():
    step = tg.compile(lambda x: x * 2.0)
    with pytest.raises(TypeError, match=r"scan: received .*iterator for args\[0\], .* np\.stack"):
        step.scan(iter([np.ones(2), np.ones(2)]))
    with pytest.raises(ValueError, match="scan: received no array; .* Pass length=n"):
        step.scan(2.0)
