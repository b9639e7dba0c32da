"""`tg.compile`: what eager calls give, or an error that names the cause; never a frozen number."""

from __future__ import annotations

import functools
import gc
import itertools
import logging
import threading
import tracemalloc
import weakref

import numpy as np
import pytest

import tapegraph as tg

pytestmark = pytest.mark.versions

RNG = np.random.default_rng(0)
X = RNG.normal(size=(8, 16, 3))
CLASSES = RNG.integers(0, 2, size=(8, 16))


@pytest.fixture(autouse=True, params=["native", "tensorflow"])
def engine(request, monkeypatch):
    """The engine that runs the steps; what the others do not run is an error."""
    if request.param == "tensorflow":
        pytest.importorskip("tensorflow")
        monkeypatch.setenv("TAPEGRAPH_STRICT", "1")
    with tg.use_backend(request.param):
        yield request.param


def alike(got, want):
    """Bit for bit the same natively, within the contract in another engine."""
    got, want = (np.asarray(a.detach() if isinstance(a, tg.Tensor) else a) for a in (got, want))
    assert got.dtype == want.dtype
    if tg.get_backend() == "native":
        np.testing.assert_array_equal(got, want)
    else:
        single = want.dtype == np.float32
        np.testing.assert_allclose(got, want, *((1e-4, 1e-5) if single else (1e-9, 1e-12)))


def network(dtype=np.float64):
    rng = np.random.default_rng(1)
    shapes = {"w1": (3, 8), "b1": (8,), "w2": (8, 2)}
    return [tg.param(rng.normal(size=s).astype(dtype) * 0.3, name=n) for n, s in shapes.items()]


def stepper(params, optimizer):
    def step(x, classes):
        hidden = tg.tanh(x @ params[0] + params[1])
        loss = tg.softmax_crossentropy(hidden @ params[2], classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def pair(make):
    """The same step twice, eagerly and compiled: functions, and their parameters."""
    eager, params = make()
    step, others = make()
    natively = functools.update_wrapper(tg.use_backend("native")(eager), eager)
    return natively, params, tg.compile(step), others


def training():
    params = network()
    return stepper(params, tg.SGD(params, lr=0.1)), params


def equal(params, others, ulps=0):
    for a, b in zip(params, others, strict=True):
        assert (a.grad is None) == (b.grad is None)
        for one, two in ((a.data, b.data), (a.grad, b.grad)):
            if one is not None and ulps and tg.get_backend() == "native":
                np.testing.assert_array_max_ulp(one, two, ulps)
            elif one is not None:
                alike(one, two)


# ------------------------------------------------------------------ the same numbers


def test_steps_give_the_very_numbers_of_eager_ones():
    eager, params, compiled, others = pair(training)
    for x, classes in zip(X, CLASSES, strict=True):
        want, got = eager(x, classes), compiled(x, classes)
        alike(got, want)
        equal(params, others)
    assert compiled.traces == 1


def test_float32_and_scalars_keep_their_dtype():
    def make():
        params = network(np.float32)
        optimizer = tg.SGD(params, lr=0.1)

        def step(x, weight):
            loss = weight * tg.mean(tg.relu(x @ params[0] + params[1]) @ params[2]) * 0.5
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        return step, params

    eager, params, compiled, others = pair(make)
    for i, x in enumerate(X.astype(np.float32)):
        want, got = eager(x, 1.0 / (i + 1)), compiled(x, 1.0 / (i + 1))
        assert got.dtype == want.dtype == np.float32
        alike(got, want)
        equal(params, others)
    assert compiled.traces == 1


def test_nan_and_masked_infinite_slopes_are_those_of_the_sweep():
    def make():
        w = tg.param([4.0, -1.0, 0.0, 9.0])

        def step(x):
            loss = tg.sum(tg.where(w * x > 0, tg.sqrt(w * x), 0.0))
            w.zero_grad()
            loss.backward()
            return loss

        return step, [w]

    eager, params, compiled, others = pair(make)
    with np.errstate(all="ignore"):
        for x in ([1.0, 1, 1, 1], [1.0, -1, 2, 0], [np.nan, 1, 1, 1], [0.0, 0, 0, 0]):
            eager(np.array(x)), compiled(np.array(x))
            equal(params, others)


def test_accumulated_gradients_and_no_zero_grad():
    def make():
        params = network()

        def step(x, classes):
            tg.softmax_crossentropy(tg.relu(x @ params[0]) @ params[2], classes).backward()

        return step, params

    eager, params, compiled, others = pair(make)
    for x, classes in zip(X, CLASSES, strict=True):
        eager(x, classes), compiled(x, classes)
        equal(params, others)
    for p in (*params, *others):
        p.grad = None
    for x, classes in zip(X, CLASSES, strict=True):
        eager(x, classes), compiled(x, classes)
        equal(params, others)


def test_two_updates_in_one_step():
    def make():
        w = tg.param([1.0, 2.0])
        optimizer = tg.SGD([w], lr=0.1)

        def step(x):
            for _ in range(2):
                loss = tg.sum((w * x) ** 2)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            return loss

        return step, [w]

    eager, params, compiled, others = pair(make)
    for x in X[:, 0, :2]:
        alike(compiled(x), eager(x))
        equal(params, others)


def test_gradients_that_are_clipped():
    def make():
        params = network()
        optimizer = tg.SGD(params, lr=0.1)

        def step(x, classes):
            loss = tg.softmax_crossentropy(tg.tanh(x @ params[0] + params[1]) @ params[2], classes)
            optimizer.zero_grad()
            loss.backward()
            norm = np.sqrt(sum(np.sum(p.grad * p.grad) for p in params))
            with tg.no_grad():
                for p in params:
                    p.grad = p.grad * np.minimum(1.0, 0.1 / norm)
            optimizer.step()
            return norm

        return step, params

    eager, params, compiled, others = pair(make)
    for x, classes in zip(X, CLASSES, strict=True):
        alike(compiled(x, classes), np.asarray(eager(x, classes)))
        equal(params, others)


def test_state_kept_in_a_constant_tensor():
    def make():
        mean = tg.tensor(np.zeros(3))

        def step(x):
            mean.assign(0.9 * mean + 0.1 * np.mean(x, axis=0))
            return x - mean

        return step, [mean]

    eager, (mean,), compiled, (other,) = pair(make)
    for x in X:
        alike(tg.tensor(eager(x)).data, compiled(x).data)
        alike(mean.data, other.data)


def test_an_evaluation_under_no_grad_and_a_pure_function():
    params = network()

    @tg.compile
    def accuracy(x, classes):
        with tg.no_grad():
            right = np.argmax(tg.tanh(x @ params[0]) @ params[2], axis=1) == classes
            return np.mean(right)

    for x, classes in zip(X, CLASSES, strict=True):
        scores = np.tanh(x @ params[0].data) @ params[2].data
        assert accuracy(x, classes).item() == np.mean(np.argmax(scores, axis=1) == classes)

    @tg.compile
    def f(x):
        return {"sorted": np.sort(x, axis=0), "parts": (tg.sum(x), 3, None, "text")}

    for x in X:
        out = f(x)
        alike(out["sorted"].data, np.sort(x, axis=0))
        alike(out["parts"][0], np.sum(x))
        assert out["parts"][1:] == (3, None, "text")


# ------------------------------------------------------------------ arguments


def test_arguments_by_structure_shape_and_value():
    compiled = tg.compile(lambda x, *, scale, flag=True: tg.sum(x["a"] * scale) if flag else x["a"])
    for _ in range(3):
        assert compiled({"a": np.ones(3)}, scale=2.0).item() == 6.0
        assert compiled({"a": np.ones(3)}, scale=0.5).item() == 1.5
    assert compiled.traces == 1
    for _ in range(3):
        assert compiled({"a": np.ones(4)}, scale=2.0).item() == 8.0
        compiled({"a": np.ones(3)}, scale=2.0, flag=False)
        compiled({"a": np.ones(3, np.float32)}, scale=2.0)
        compiled({"a": np.ones(3)}, scale=2)
    assert compiled.traces == 5


def test_the_oldest_traces_leave():
    compiled = tg.compile(lambda x: x * 2.0, max_traces=2)
    for n in (1, 2, 3, 1):
        for _ in range(3):
            alike(compiled(np.ones(n)).data, np.full(n, 2.0))
        assert compiled.traces <= 2


def test_a_new_trace_is_logged_with_what_it_is_for(caplog):
    with caplog.at_level(logging.INFO, logger="tapegraph"):
        tg.compile(lambda x: x * 2.0)(np.ones(3))
    assert "a new trace for <lambda>(x: float64[3])" in caplog.text


@pytest.mark.parametrize("wrong", [object(), {1.5: np.ones(2)}, np.array(["a"]), {1, 2}])
def test_an_argument_of_no_kind_is_named(wrong):
    with pytest.raises(TypeError, match=r"args\[0\]|input|dtype"):
        tg.compile(lambda x: x)(wrong)


@pytest.mark.parametrize(
    "change",
    {
        "strided": lambda x: x[:, ::-1],
        "transposed": lambda x: np.asfortranarray(x),
        "read-only": lambda x: np.broadcast_to(x[:1], x.shape),
        "list of arrays": lambda x: x.copy(),
    }.items(),
    ids=lambda item: item[0],
)
@pytest.mark.one_in(4, of="tensorflow")
def test_layouts(change):
    eager, params, compiled, others = pair(training)
    for x, classes in zip(X, CLASSES, strict=True):
        x = change[1](x)
        assert eager(x, classes).item() == pytest.approx(compiled(x, classes).item(), rel=1e-12)


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1,)], ids=str)
def test_zero_size_and_0d_arrays(shape):
    compiled = tg.compile(lambda x: (np.exp(x) * 2.0, tg.sum(x)))
    for _ in range(4):
        a, b = compiled(np.ones(shape))
        alike(a.data, np.exp(np.ones(shape)) * 2.0)
        alike(b, np.ones(shape).sum())


# ------------------------------------------------------------------ what is returned


def test_results_are_never_overwritten_and_never_alias():
    w = tg.param([1.0, 2.0])

    @tg.compile
    def f(x):
        y = x * w
        return y, y, x

    kept = [f(np.full(2, float(i))) for i in range(6)]
    for i, (a, b, x) in enumerate(kept):
        alike(a.data, [i, 2.0 * i])
        alike(x.data, np.full(2, float(i)))
        a.data[...] = -1.0
        alike(b.data, [i, 2.0 * i])
    given = np.ones(2)
    _, _, x = f(given)
    given[...] = 7.0
    alike(x.data, [1.0, 1.0])


def test_an_output_fed_back_as_an_input():
    f = tg.compile(lambda y: np.cos(y))
    y, want = np.array([0.3]), np.array([0.3])
    for _ in range(6):
        y, want = f(y).data, np.cos(want)
        alike(y, want)
    product = tg.compile(lambda a, b: a * b)
    for i in range(5):
        both = np.full(2, float(i))
        alike(product(both, both).data, both * both)


def test_present_values_are_read_between_calls():
    eager, params, compiled, others = pair(training)
    views = []
    for x, classes in zip(X[:5], CLASSES, strict=False):
        eager(x, classes), compiled(x, classes)
        views.append(others[0].data.copy())
        alike(others[0].data, params[0].data)
    assert len({v.tobytes() for v in views}) == 5


# ------------------------------------------------------------------ state that changes outside


def test_assigning_parameters_and_the_learning_rate_is_seen():
    def make():
        params = network()
        optimizer = tg.SGD(params, lr=0.1)
        step = stepper(params, optimizer)
        step.optimizer = optimizer
        return step, params

    eager, params, compiled, others = pair(make)
    for i, (x, classes) in enumerate(zip(X, CLASSES, strict=True)):
        if i == 4:
            for p in (params, others):
                p[0].assign(np.full((3, 8), 0.1))
                p[1].data += 1.0
        for f in (eager, compiled):
            f.optimizer.lr = 0.1 / (i + 1)
        alike(compiled(x, classes), eager(x, classes))
        equal(params, others)
    assert compiled.traces == 1


def test_a_parameter_of_another_dtype_or_shape_is_recorded_anew():
    w = tg.param(np.ones(3))
    f = tg.compile(lambda x: tg.sum(w * x))
    for _ in range(3):
        assert f(2.0).item() == 6.0
    w._array = np.ones(4, np.float32)
    for _ in range(4):
        assert f(2.0).item() == 8.0
        assert f(2.0).dtype == np.float32


# ------------------------------------------------------------------ what is never frozen


def test_a_branch_by_a_number_is_an_error_in_the_first_call():
    def f(x):
        return x * 2 if x.sum() > 0 else x

    with pytest.raises(tg.ConcretizationError, match=r"bool: .*greater.*test_compile\.py"):
        tg.compile(f)(np.ones(3))


@pytest.mark.parametrize(
    "f",
    {
        "float argument": lambda x, s: x * float(s),
        "branch on a float": lambda x, s: x if s > 0.5 else -x,
        "if float": lambda x, s: x if s else -x,
        "item": lambda x, s: x.sum().item(),
        "index of an array": lambda x, s: np.arange(3.0)[x.argmax()],
        "mask": lambda x, s: x[x > 0],
    }.values(),
)
def test_a_number_that_is_read_is_an_error_in_the_first_call(f):
    with pytest.raises((tg.ConcretizationError, TypeError, IndexError)):
        tg.compile(f)(np.ones(3), 0.7)


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (lambda x, n: x * float(next(n)), r"the number 3\.0, and then 2\.0, in mul"),
        (lambda x, n: x * np.full(3, next(n)), "an array of shape .* with other numbers"),
        (lambda x, n: np.sin(x) if next(n) > 2 else np.cos(x), "sin .* and then cos"),
        (lambda x, n: x[: next(n)], "getitem"),
        (lambda x, n: (x,) * next(n), "it returned"),
        (lambda x, n: (x * 2, next(n)), r"it returned \(tensor, 3\), and then \(tensor, 2\)"),
        (lambda x, n: (x * 2, float(next(n))), r"3\.0 as the result\[1\], and then 2\.0"),
    ],
)
def test_what_changes_between_calls_is_an_error_in_the_second(f, message):
    numbers = iter((3, 2, 1))  # no guard looks into an iterator
    compiled = tg.compile(lambda x: f(x, numbers))
    compiled(np.ones(3))
    with pytest.raises(tg.TraceMismatchError, match=message) as caught:
        compiled(np.ones(3))
    assert "test_compile.py" in str(caught.value) or "it returned" in message


def test_numpys_own_random_numbers_are_a_mismatch():
    rng = np.random.default_rng(0)
    compiled = tg.compile(lambda x: x * rng.normal(size=3))
    compiled(np.ones(3))
    with pytest.raises(tg.TraceMismatchError, match="with other numbers"):
        compiled(np.ones(3))


def test_random_numbers_are_drawn_anew_and_are_those_of_eager_calls():
    w = tg.param(np.ones(50))

    def step(x):
        tg.random.normal(size=3)  # nobody reads it, and yet it moves the stream
        noise = tg.random.uniform(size=50)
        return tg.sum(tg.dropout(w * x, 0.5) + noise)

    state = tg.random.get_state()
    try:
        tg.random.seed(3)
        want = [step(x).item() for x in np.arange(6.0)]
        tg.random.seed(3)
        compiled = tg.compile(step)
        alike([compiled(np.array(x)).item() for x in np.arange(6.0)], want)
        assert len(set(want)) == 6
    finally:
        tg.random.set_state(state)


def test_a_draw_of_another_kind_is_a_mismatch():
    scales = iter((2.0, 1.0))
    compiled = tg.compile(lambda x: x * tg.random.normal(scale=next(scales), size=3))
    compiled(np.ones(3))
    with pytest.raises(tg.TraceMismatchError, match="scale"):
        compiled(np.ones(3))


def test_verifying_finds_what_changes_later():
    flags = [[[False, *range(4096)]]]  # more than guards look at
    compiled = tg.compile(lambda x: np.sin(x) if flags[0][0][0] else np.cos(x), verify_every=4)
    for _ in range(7):
        alike(compiled(np.ones(2)).data, np.cos(np.ones(2)))
    flags[0][0][0] = True
    with pytest.raises(tg.TraceMismatchError, match="cos .* and then sin"):
        compiled(np.ones(2))


# ------------------------------------------------------------------ failures


def test_a_failing_recorded_call_leaves_everything_as_it_was():
    params = network()
    optimizer = tg.SGD(params, lr=0.1)
    fail = []

    @tg.compile
    def step(x, classes):
        loss = tg.softmax_crossentropy(tg.tanh(x @ params[0] + params[1]) @ params[2], classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if fail:
            raise KeyboardInterrupt
        return loss

    for calls in (0, 1):
        for x, classes in zip(X[:calls], CLASSES, strict=False):
            step(x, classes)
        before = [(p.numpy(), None if p.grad is None else p.grad.copy()) for p in params]
        fail.append(True)
        with pytest.raises(KeyboardInterrupt):
            step(X[5], CLASSES[5])
        fail.clear()
        for p, (data, grad) in zip(params, before, strict=True):
            alike(p.data, data)
            np.testing.assert_equal(p.grad, grad)


def test_a_failing_run_leaves_everything_as_it_was():
    params = network()
    step = tg.compile(stepper(params, tg.SGD(params, lr=0.1)))
    for x, classes in zip(X[:4], CLASSES, strict=False):
        step(x, classes)
    before = [(p.numpy(), p.grad.copy()) for p in params]
    with pytest.raises(IndexError, match=r"expected a class in \[0, 2\)") as error:
        step(X[5], np.full(16, 2))
    with pytest.raises(IndexError) as eagerly:
        step.__wrapped__(X[5], np.full(16, 2))
    assert str(error.value) == str(eagerly.value)
    for p, (data, grad) in zip(params, before, strict=True):
        alike(p.data, data)
        alike(p.grad, grad)
    step(X[5], CLASSES[5])


# ------------------------------------------------------------------ where it is used


def test_methods_have_a_cache_per_instance():
    class Model:
        def __init__(self, start):
            self.w = tg.param(start)

        @tg.compile
        def double(self, x):
            return self.w * x * 2.0

    one, two = Model([1.0]), Model([10.0])
    for _ in range(4):
        assert one.double(np.ones(1)).item() == 2.0
        assert two.double(np.ones(1)).item() == 20.0
    held = weakref.ref(one)
    del one
    gc.collect()
    assert held() is None


def test_a_compiled_function_inside_another_is_a_part_of_it():
    inner = tg.compile(lambda x: np.sin(x) * 2.0)
    outer = tg.compile(lambda x: inner(x) + 1.0)
    for x in X[:, 0]:
        alike(outer(x).data, np.sin(x) * 2.0 + 1.0)
    assert inner.traces == 0


def test_switches(monkeypatch):
    counter = itertools.count()

    def f(x):
        next(counter)
        return x * 2.0

    compiled = tg.compile(f, verify_every=None)
    with tg.compile_disabled():
        for _ in range(4):
            assert isinstance(compiled(np.ones(2)), np.ndarray)
    monkeypatch.setenv("TAPEGRAPH_COMPILE", "0")
    compiled(np.ones(2))
    assert next(counter) == 5 and compiled.traces == 0
    monkeypatch.delenv("TAPEGRAPH_COMPILE")
    for _ in range(4):
        compiled(np.ones(2))
    assert next(counter) == 8  # the looks at the counter count too
    compiled.reset()
    compiled(np.ones(2))
    assert next(counter) == 10


def test_no_grad_has_a_trace_of_its_own():
    w = tg.param([2.0])
    f = tg.compile(lambda x: w * x)
    for _ in range(3):
        with tg.no_grad():
            assert f(np.ones(1)).item() == 2.0
        assert f(np.ones(1)).item() == 2.0
    assert f.traces == 2


def test_looking_at_it():
    compiled = tg.compile(training()[0])
    with pytest.raises(RuntimeError, match="no plan yet"):
        compiled.source()
    for x, classes in zip(X[:4], CLASSES, strict=False):
        compiled(x, classes)
    assert f"ran in {tg.get_backend()}" in compiled.explain() and "4 calls" in compiled.explain()
    assert "tanh(" in compiled.source() and "test_compile.py" in compiled.source()
    assert compiled.__name__ == "step"


def test_threads():
    params = network()
    step = tg.compile(stepper(params, tg.SGD(params, lr=0.0)))
    losses = []

    def run():
        losses.extend(step(X[0], CLASSES[0]).item() for _ in range(20))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(losses) == 80  # in TensorFlow the real calls, and a graph with XLA, round otherwise
    np.testing.assert_allclose(losses, losses[0], rtol=1e-6)


@pytest.mark.usefixtures("few_objects")
@pytest.mark.one_in(2, of="tensorflow", start=1)
def test_memory_is_flat_over_calls_and_shapes(thorough):
    params = network()
    step = tg.compile(stepper(params, tg.SGD(params, lr=0.1)), max_traces=4)

    def work(calls):
        for _ in range(calls):
            step(X[0], CLASSES[0])

    for n in range(1, 51 if thorough else 5):
        for _ in range(3):
            step(X[0][:1].repeat(n, 0), CLASSES[0][:1].repeat(n, 0))
    assert step.traces == 4
    work(50)
    tracemalloc.start()
    try:
        held = []
        calls = 20_000 if thorough else 100
        # Free lists fill up, more and more slowly; a number that stayed of each call, 24 bytes,
        # would show in every round.
        for _ in range(12):
            work(calls)
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
            if held[1:] and held[-1] - held[-2] < 12 * calls:
                break
        else:
            pytest.fail(f"{calls} calls after calls, so many bytes are held: {held}")
    finally:
        tracemalloc.stop()


def test_dropping_the_function_frees_what_it_held():
    compiled = tg.compile(training()[0])
    for x, classes in zip(X[:4], CLASSES, strict=False):
        compiled(x, classes)
    held = weakref.ref(compiled)
    del compiled
    gc.collect()
    assert held() is None


@pytest.mark.parametrize("wrong", [3, None.__class__, "f"])
def test_what_is_no_function(wrong):
    if not callable(wrong):
        with pytest.raises(TypeError, match="compile: received"):
            tg.compile(wrong)
    with pytest.raises(ValueError, match="max_traces"):
        tg.compile(lambda: 1, max_traces=0)


def test_a_step_says_how_many_traces_it_has_and_where_it_ran():
    @tg.compile
    def step(x):
        return 2.0 * x

    assert repr(step) == "<compiled step, 0 traces>"
    with tg.use_backend("native"):
        step(X := np.ones(2))
        assert repr(step) == "<compiled step, 1 trace>"
        step(X), step(X)
        assert repr(step) == "<compiled step, 1 trace, ran in the native engine>"
        step(X[:1])
        assert repr(step) == "<compiled step, 2 traces>"
