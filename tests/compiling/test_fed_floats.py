"""Floats that every call gives anew: what Python computes from them, and where they stand."""

from __future__ import annotations

import copy
import math
import pickle
import sys
import threading

import numpy as np
import pytest

import tapegraph as tg

X = np.array([1.0, -2.0, 0.5])


class Held:
    """An object whose attribute a step reads."""

    def __init__(self, k):
        self.k = k
        self.loss = None


def calls_of(work):
    """Return how many calls of Python functions some work makes."""
    count = 0

    def hear(frame, event, argument):
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(hear)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


# ------------------------------------------------------------------ Python's arithmetic


def logistic(rounds):
    """Return a step that iterates a map: each number is read twice by the next."""

    def step(x, c):
        z = c
        for _ in range(rounds):
            z = z * z + c
        return x * z

    return step


def test_a_number_that_is_read_twice_is_computed_once():
    counts = []
    for rounds in (1, 12):
        with tg.use_backend("native"):
            step = tg.compile(logistic(rounds), verify_every=None)
            for _ in range(3):
                step(X, 0.1)
            counts.append(calls_of(lambda step=step: step(X, 0.1)))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("rounds", [30, 2500])
def test_arithmetic_of_a_float_as_long_as_one_likes(rounds, engine):
    step, eager = tg.compile(logistic(rounds)), logistic(rounds)
    for c in (0.1, -0.7, 0.2, -1.0, 0.25):
        np.testing.assert_array_equal(step(X, c).data, eager(X, c))
    assert step.traces == 1


@pytest.mark.parametrize("fed", ["argument", "attribute"])
def test_a_discounted_return_of_many_rounds(fed):
    held, w = Held(0.99), tg.param(X)

    def discounted(rewards, gamma):
        total, d = 0.0, 1.0
        for t in range(700):
            if t % 100 == 0:
                total = total + d * rewards
            d *= gamma
        return total

    with tg.use_backend("native"):
        if fed == "argument":
            step = tg.compile(lambda x, gamma: discounted(w * x, gamma))
        else:
            step = tg.compile(lambda x, _: discounted(w * x, held.k))
        for i in range(10):
            held.k = 0.99 + 0.001 * i
            want = X * sum(held.k ** (100 * t) for t in range(7)) * X
            np.testing.assert_allclose(step(X, held.k).data, want, rtol=1e-10)


def test_constants_are_told_apart_by_type_and_sign():
    def step(x, k):
        return x * (k * 1), x * (k * 1.0), x * (k * True), x * (k + 0.0), x * (k + -0.0)

    compiled = tg.compile(step)
    with tg.use_backend("native"):
        for k in (2.0, -0.0, 1e-320, float("inf"), -3.0):
            with np.errstate(all="ignore"):
                want = step(X, k)
            for got, expected in zip(compiled(X, k), want, strict=True):
                assert got.data.tobytes() == expected.tobytes()


def test_arithmetic_that_nothing_reads_may_differ():
    factors = iter((3.0, 2.0, 1.0))

    def step(x, k):
        k * next(factors)
        return x * k

    compiled = tg.compile(step, verify_every=None)
    for k in (0.5, 2.0, 4.0):
        np.testing.assert_array_equal(compiled(X, k).data, X * k)


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        (lambda k, c, turn: k * (3.0 if turn else 2.0), r"the number 3\.0, and then 2\.0"),
        (lambda k, c, turn: (k if turn else c) * 2.0, "the number .*argument 1.*argument 2"),
        (lambda k, c, turn: k + c if turn else k - c, r"add\(.*sub\("),
    ],
)
def test_a_mismatch_says_which_number_differs(chosen, words):
    turns = iter((True, False))
    step = tg.compile(lambda x, k, c: x * chosen(k, c, next(turns)))
    step(X, 0.5, 0.25)
    with pytest.raises(tg.TraceMismatchError, match=words):
        step(X, 0.5, 0.25)


# ------------------------------------------------------------------ what a function asks of them


DEFAULT = 2.0
ASKED = {
    "its type": lambda h: h.k if type(h.k) is float else 1.0,
    "the name of its type": lambda h: h.k * len(type(h.k).__name__),
    "whether it is an array": lambda h: h.k * (3.0 if hasattr(h.k, "shape") else 2.0),
    "by isinstance": lambda h: h.k * (3.0 if isinstance(h.k, float) else 2.0),
    "whether it is another object": lambda h: 3.0 if h.k is DEFAULT else 2.0,
    "its type, by a table": lambda h: {float: 1.0, int: 2.0}.get(type(h.k), 5.0) * h.k,
}


@pytest.mark.one_in(2, of="tensorflow")
@pytest.mark.filterwarnings("ignore:.*8 new traces")
@pytest.mark.parametrize("name", ASKED)
def test_whatever_a_function_asks_of_a_float_that_changes(name, engine):
    held, w, ask = Held(DEFAULT), tg.param(X), ASKED[name]

    def f(x):
        return tg.sum(w * x) * ask(held)

    step = tg.compile(f)
    numbers = [DEFAULT] * 6 + [3.5] * 6 + [DEFAULT] * 5 + [0.1 * i for i in range(1, 9)]
    for k in [*numbers, DEFAULT, DEFAULT, 7.0, 7.0, DEFAULT]:
        held.k = k
        np.testing.assert_allclose(step(X).data, (X * X).sum() * ask(held), rtol=1e-12)


def test_a_float_that_the_function_sees_elsewhere_too_is_fed_again_once_it_changes():
    """That one object is another may matter to it; of equal numbers, it does not."""
    held = Held(DEFAULT)
    step = tg.compile(lambda x: x * held.k * (3.0 if held.k is DEFAULT else 2.0))
    with tg.use_backend("native"):
        for k in (DEFAULT, DEFAULT, 0.5, 0.25, 0.125, DEFAULT, DEFAULT, float("2.0"), 7.0):
            held.k = k
            want = X * k * (3.0 if k is DEFAULT else 2.0)
            np.testing.assert_array_equal(step(X).data, want)
    assert step.traces == 2


def test_what_a_branch_on_type_and_number_leaves_stale_a_real_call_finds():
    def more(k):
        return 10.0 if type(k) is float and k > 5.0 else 0.0

    held = Held(1.0)
    step = tg.compile(lambda x: x * held.k + more(held.k))
    with tg.use_backend("native"):
        for k in (1.0, 1.0, 2.0, 3.0, 4.0):
            held.k = k
            np.testing.assert_array_equal(step(X).data, X * k)
        with pytest.raises(tg.TraceMismatchError, match="with held.k fed, the numbers are not"):
            for k in (6.0, 7.0, 8.0, 9.0, 10.0, 11.0):
                held.k = k
                step(X)
        for k in (12.0, 3.0, 13.0):  # from then on it counts by value
            held.k = k
            np.testing.assert_array_equal(step(X).data, X * k + more(k))


def test_a_real_call_leaves_the_numbers_of_one_call(engine):
    """Where it runs twice, the first of the two leaves nothing."""
    held, w = Held(1.0), tg.param(X)
    optimizer = tg.Adam([w], lr=0.1)
    tg.random.seed(3)

    def f(x):
        loss = tg.sum(w * x * tg.random.normal(size=3)) * held.k
        loss.backward()  # gradients add up
        optimizer.step()
        held.loss = loss
        return loss, w.grad

    def run(step):
        tg.random.seed(3)
        w.assign(X), w.zero_grad()
        optimizer.load_state_dict(start)
        for i in range(8):
            held.k = 1.0 - 0.1 * i
            loss, grad = step(X)
            yield loss.item(), grad * 1.0, w.numpy(), held.k

    start = optimizer.state_dict()
    with tg.use_backend("native"):
        want = list(run(f))
    step = tg.compile(f)
    for got, expected in zip(run(step), want, strict=True):
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9)
    with pytest.raises(RuntimeError, match="of an earlier call"):
        held.loss.item()
    assert step.traces == 2


@pytest.mark.filterwarnings("ignore:.*8 new traces")
def test_a_function_that_changes_what_it_sees_runs_once_in_a_call():
    def made():
        held, w = Held(1.0), tg.param(X)
        held.n = 0

        def f(x, counts):
            if counts:
                held.n += 1
            return w * x * held.k + held.n

        return held, f

    (held, f), (other, eager) = made(), made()
    step = tg.compile(f)
    for k, counts in [(1.0, False), (0.5, False), (0.25, False), *[(3.0, True)] * 4, (2.0, False)]:
        held.k = other.k = k
        np.testing.assert_array_equal(step(X, counts).data, eager(X, counts).data)
        assert held.n == other.n


@pytest.mark.filterwarnings("ignore:.*8 new traces")
def test_a_root_of_a_negative_float_is_complex_as_eagerly(engine):
    held = Held(1.0)
    step = tg.compile(lambda x: x * held.k**0.5)
    for k in (1.0, 1.0, 4.0, 9.0, 2.0, -1.0, -4.0, -4.0, 3.0, 5.0, -2.0):
        held.k = k
        np.testing.assert_allclose(step(X).data, X * k**0.5, rtol=1e-12)
        assert step(X).dtype == np.asarray(k**0.5).dtype


def test_a_root_of_a_negative_float_argument_says_what_to_write(engine):
    step = tg.compile(lambda x, k: x * k**0.5)
    for k in (1.0, 4.0, 9.0):
        np.testing.assert_allclose(step(X, k).data, X * k**0.5)
    for compiled in (step, tg.compile(lambda x, k: x * k**0.5)):
        with pytest.raises(tg.ConcretizationError, match=r"-4.0 \*\* 0.5, which is complex"):
            compiled(X, -4.0)
    np.testing.assert_allclose(step(X, 16.0).data, X * 4.0)
    step = tg.compile(lambda x, k: x * (k + 0j) ** 0.5)  # as the error says
    for k in (1.0, 4.0, -9.0, -1.0):
        np.testing.assert_allclose(step(X, k).data, X * (k + 0j) ** 0.5)


# ------------------------------------------------------------------ code that has no part in it


def outside(held):
    """Return what code outside of a step makes of a number that it finds in an attribute."""
    k = held.k
    made = [k + 1.0, 2.0 * k, k**2, k // 2.0, divmod(k, 2.0), -k, abs(k), round(k, 1), round(k)]
    made += [k > 1.0, k == 3.0, not k, hash(k), f"{k:.2f}", repr(k), {3.0: 1}.get(k), math.sqrt(k)]
    made += [int(k), k.hex(), k.real, np.sqrt(k), np.array([k, 1.0]), np.full(2, k), np.ones(2) * k]
    made += [np.stack([k, 2.0]), np.maximum(k, [1.0, 4.0]), (tg.tensor([1.0]) * k).item()]
    made += [tg.tensor(k).item(), pickle.loads(pickle.dumps(k)), copy.deepcopy([k])[0] + 0.0]
    return made


def test_another_thread_finds_a_plain_number(engine):
    held, w = Held(3.0), tg.param(X)
    want, found = outside(held), []

    class Looks(threading.Thread):
        def run(self):
            found.append((isinstance(held.k, float), outside(held)))

    def f(x):
        thread = Looks()
        thread.start()
        thread.join()
        return w * x * (1.0 - held.k)

    step = tg.compile(f)
    for k in (1.0, 1.0, 3.0, 3.0, 3.0, 3.0, 2.0, 5.0, 3.0):
        held.k = k
        np.testing.assert_allclose(step(X).data, X * X * (1.0 - k))
    assert step.traces == 2
    found = [made for made in found if made[1][0] == want[0]]
    assert len(found) >= 2
    for is_float, made in found:
        assert is_float
        for a, b in zip(made, want, strict=True):
            assert type(a) is type(b)
            np.testing.assert_array_equal(a, b)


def test_two_steps_in_two_threads_feed_one_attribute():
    held = Held(0.0)
    failures = []

    def work(offset):
        w = tg.param(X + offset)
        step = tg.compile(lambda x: w * x * (held.k + 1.0), verify_every=2)
        try:
            with tg.use_backend("native"):
                for _ in range(60):
                    y = step(X).data / ((X + offset) * X)
                    assert np.allclose(y, y[0]), y
                    assert y[0] in {1.0 + k for k in numbers}, y
        except BaseException as error:
            failures.append(error)

    numbers = [0.25 * i for i in range(40)]
    threads = [threading.Thread(target=work, args=(i,)) for i in (3.0, 4.0)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        for k in numbers:
            held.k = k
    assert not failures
    assert type(held.k) is float


PENDING = []


def disturbed(held):
    """Return a function that reads a float which a thread sets meanwhile, if one is pending."""
    w = tg.param(X)

    class Sets(threading.Thread):
        def run(self):
            if PENDING:
                held.k = PENDING.pop()

    def f(x):
        thread = Sets()
        thread.start()
        thread.join()
        return w * x * held.k

    return f


def test_what_another_thread_puts_there_during_a_real_call_stays():
    held = Held(1.0)
    step = tg.compile(disturbed(held), verify_every=1)
    with tg.use_backend("native"):
        for k in (1.0, 1.0, 2.0, 3.0, 4.0):
            held.k = k
            np.testing.assert_array_equal(step(X).data, X * X * k)
        PENDING.append(8.0)
        step(X)  # the float changes in the midst of it
        assert held.k == 8.0
        for k in (8.0, 9.0, 10.0):
            held.k = k
            np.testing.assert_array_equal(step(X).data, X * X * k)
    assert step.traces == 2


@pytest.mark.parametrize("when", range(3))
def test_a_number_that_another_thread_sets_during_a_real_call_is_no_mismatch(when):
    held = Held(1.0)
    step = tg.compile(disturbed(held), verify_every=3)
    with tg.use_backend("native"):
        for call in range(9):
            held.k = k = 1.0
            if call == when:
                k = 1.5
                PENDING.append(k)
            np.testing.assert_array_equal(step(X).data, X * X * k)
    assert step.traces == 1
    step.source()


def test_a_step_that_changes_what_it_reads_does_not_hide_a_mismatch():
    held, w, unseen = Held(1.0), tg.param(X), iter(np.linspace(1.0, 2.0, 20))

    def f(x):
        y = w * x * held.k * next(unseen).item()
        held.k += 1.0
        return y

    step = tg.compile(f)
    results = []
    with tg.use_backend("native"), pytest.raises(tg.TraceMismatchError):
        for _ in range(8):
            held.k = 1.0
            results.append(step(X).data)
    assert 1 < len(results) < 8
    np.testing.assert_allclose(
        results, [X * X * k for k in np.linspace(1.0, 2.0, 20)[: len(results)]]
    )


def test_a_number_that_another_thread_sets_during_a_recording_is_not_kept():
    held, w, numbers = Held(1.0), tg.param(X), [1.0, 1.0, 3.0, 3.0, 3.0, 2.0, 5.0, 2.0]
    runs, has_run = threading.Event(), threading.Event()

    def set_again():
        while runs.wait(60) and numbers:
            runs.clear()
            held.k = numbers[0]
            has_run.set()

    def f(x):
        runs.set()
        assert has_run.wait(60)
        has_run.clear()
        return w * x * (held.k + 1.0)

    step = tg.compile(f, verify_every=None)
    thread = threading.Thread(target=set_again)
    thread.start()
    while numbers:
        held.k = numbers[0]
        try:
            np.testing.assert_allclose(step(X).data, X * X * (numbers[0] + 1.0))
        finally:
            del numbers[0]
    runs.set()
    thread.join()
