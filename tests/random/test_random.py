"""Random numbers: NumPy's own, from one stream that can be saved, drawn anew by every run."""

from __future__ import annotations

import json
import math
import os
import sys
import threading

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.capture import Capture
from tapegraph.errors import ConcretizationError
from tests.quick import in_one
from tests.replay import replay

SEED = 20240607
MANY = 200_000

DRAWS = {
    "normal": lambda: tg.random.normal(1.0, 2.0, (3, 4)),
    "normal float32": lambda: tg.random.normal(1.0, 2.0, (3, 4), np.float32),
    "uniform": lambda: tg.random.uniform(-1.0, 2.0, (3, 4)),
    "uniform float32": lambda: tg.random.uniform(-1.0, 2.0, (3, 4), np.float32),
    "integers": lambda: tg.random.integers(-3, 9, (3, 4)),
    "permutation": lambda: tg.random.permutation(12),
    "dropout_mask": lambda: tg.random.dropout_mask((3, 4), 0.3),
    "dropout_mask float32": lambda: tg.random.dropout_mask((3, 4), 0.3, np.float32),
    "number": lambda: tg.random.normal(),
    "nothing": lambda: tg.random.uniform(size=(0, 3)),
}
every_draw = pytest.mark.parametrize("draw", DRAWS)


@pytest.fixture(autouse=True)
def seeded():
    """Begin each test at one seed, and leave the stream where it was."""
    state = tg.random.get_state()
    tg.random.seed(SEED)
    yield
    tg.random.set_state(state)


# ------------------------------------------------------------------ the numbers


NUMPYS = {
    "normal": lambda rng: rng.normal(1.0, 2.0, (3, 4)),
    "normal float32": lambda rng: np.float32(1) + 2 * rng.standard_normal((3, 4), np.float32),
    "uniform": lambda rng: rng.uniform(-1.0, 2.0, (3, 4)),
    "uniform float32": lambda rng: np.float32(-1) + 3 * rng.random((3, 4), np.float32),
    "integers": lambda rng: rng.integers(-3, 9, (3, 4)),
    "permutation": lambda rng: rng.permutation(12),
    "dropout_mask": lambda rng: np.where(rng.random((3, 4)) < 0.3, 0.0, 1 / 0.7),
    "dropout_mask float32": lambda rng: np.where(
        rng.random((3, 4)) < 0.3, np.float32(0), np.float32(1 / 0.7)
    ),
    "number": lambda rng: np.asarray(rng.normal()),
    "nothing": lambda rng: rng.random((0, 3)),
}


@every_draw
def test_the_numbers_are_those_of_a_generator_of_the_same_seed(draw):
    rng = np.random.default_rng(SEED)
    for _ in range(3):
        got, want = DRAWS[draw](), NUMPYS[draw](rng)
        assert type(got) is np.ndarray
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_array_equal(got, want)


def test_draws_of_all_kinds_share_one_stream():
    rng = np.random.default_rng(SEED)
    for draw in DRAWS:
        np.testing.assert_array_equal(DRAWS[draw](), NUMPYS[draw](rng))
    assert tg.random.get_state() == rng.bit_generator.state
    assert tg.random.generator().normal() == rng.normal()


def distance(sample, distribution):
    """The Kolmogorov-Smirnov distance of a sample from a distribution function."""
    x = np.sort(sample.astype(np.float64))
    ranks = np.arange(x.size + 1) / x.size
    expected = np.vectorize(distribution)(x)
    return max((ranks[1:] - expected).max(), (expected - ranks[:-1]).max())


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_normal_has_the_moments_and_the_distribution_of_the_closed_form(dtype):
    loc, scale = -3.0, 0.5
    x = tg.random.normal(loc, scale, MANY, dtype)
    assert x.dtype == dtype
    z = (x.astype(np.float64) - loc) / scale
    # Of the mean of z**k the variance is (E z**2k - (E z**k)**2) / n: five deviations are allowed.
    for k, moment, deviation in ((1, 0, 1), (2, 1, 2**0.5), (3, 0, 15**0.5), (4, 3, 96**0.5)):
        assert abs((z**k).mean() - moment) < 5 * deviation / MANY**0.5
    assert distance(z, lambda v: 0.5 * math.erfc(-v / 2**0.5)) < 1.95 / MANY**0.5  # 0.1 %


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_uniform_has_the_moments_and_the_distribution_of_the_closed_form(dtype):
    low, high = -2.0, 4.0
    x = tg.random.uniform(low, high, MANY, dtype)
    assert x.dtype == dtype and x.min() >= low and x.max() <= high
    x = x.astype(np.float64)
    width = high - low
    assert abs(x.mean() - (low + high) / 2) < 5 * width / (12 * MANY) ** 0.5
    assert abs(x.var() - width**2 / 12) < 5 * width**2 / (180 * MANY) ** 0.5
    assert distance(x, lambda v: (v - low) / width) < 1.95 / MANY**0.5


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_a_mask_drops_its_share_and_has_mean_1(p):
    mask = tg.random.dropout_mask(MANY, p)
    assert set(np.unique(mask)) == {0.0, 1 / (1 - p)}
    assert abs(mask.mean() - 1) < 5 * (p / (1 - p) / MANY) ** 0.5  # five deviations


def test_masks_at_the_ends():
    np.testing.assert_array_equal(tg.random.dropout_mask(100, 0), np.ones(100))
    np.testing.assert_array_equal(tg.random.dropout_mask(100, 1), np.zeros(100))


def test_integers_and_permutations_are_even():
    counts = np.bincount(tg.random.integers(5, size=MANY), minlength=5)
    expected = MANY / 5
    assert ((counts - expected) ** 2 / expected).sum() < 18.47  # chi-squared, 4 degrees, 0.1 %
    firsts = np.array([tg.random.permutation(4) for _ in range(4000)])
    assert (np.sort(firsts, axis=1) == np.arange(4)).all()
    for place in firsts.T:
        counts = np.bincount(place, minlength=4)
        assert ((counts - 1000) ** 2 / 1000).sum() < 16.27  # 3 degrees


def test_bounds_of_integers():
    assert set(tg.random.integers(-1, 2, size=100)) == {-1, 0, 1}
    ends = tg.random.integers(-(2**63), 2**63, size=100)
    assert ends.dtype == np.int64 and ends.min() < 0 < ends.max()


# ------------------------------------------------------------------ the stream


@every_draw
def test_a_saved_state_brings_the_same_numbers_back(draw):
    DRAWS[draw]()
    saved = tg.random.get_state()
    text = json.dumps(saved)
    first = [DRAWS[draw]() for _ in range(3)]
    for state in (saved, json.loads(text)):
        tg.random.set_state(state)
        assert tg.random.get_state() == saved
        np.testing.assert_array_equal([DRAWS[draw]() for _ in range(3)], first)


def test_a_state_holds_half_a_draw_too():
    tg.random.normal(size=3, dtype=np.float32)  # takes 32 bits of 64, and keeps the others
    saved = json.loads(json.dumps(tg.random.get_state()))
    assert saved["has_uint32"] == 1
    first = tg.random.uniform(size=3, dtype=np.float32)
    tg.random.set_state(saved)
    np.testing.assert_array_equal(tg.random.uniform(size=3, dtype=np.float32), first)


def test_a_state_is_a_copy_in_both_directions():
    saved = tg.random.get_state()
    tg.random.uniform(size=5)
    assert saved == np.random.default_rng(SEED).bit_generator.state
    tg.random.set_state(saved)
    saved["state"]["state"] += 1
    assert tg.random.get_state() == np.random.default_rng(SEED).bit_generator.state
    tg.random.get_state()["state"]["state"] = 0
    assert tg.random.get_state() == np.random.default_rng(SEED).bit_generator.state


def test_a_state_of_a_generator_is_one_too():
    rng = np.random.default_rng(3)
    rng.normal(size=10)
    tg.random.set_state(rng.bit_generator.state)
    np.testing.assert_array_equal(tg.random.normal(size=4), rng.normal(size=4))


def test_the_generator_stays_the_same_object():
    generator = tg.random.generator()
    assert isinstance(generator, np.random.Generator)
    tg.random.seed(1)
    tg.random.set_state(tg.random.get_state())
    assert tg.random.generator() is generator


@pytest.mark.parametrize("n", [0, 2**200, np.int64(5)])
def test_seeds(n):
    tg.random.seed(n)
    assert tg.random.get_state() == np.random.default_rng(int(n)).bit_generator.state


def state_with(**changed):
    return {**np.random.default_rng(1).bit_generator.state, **changed}


REFUSED = {
    "normal scale negative": (lambda: tg.random.normal(0, -1), ValueError, "scale=-1.0"),
    "normal loc infinite": (lambda: tg.random.normal(np.inf), ValueError, "loc=inf"),
    "normal scale NaN": (lambda: tg.random.normal(0, np.nan), ValueError, "scale=nan"),
    "normal loc beyond float32": (
        lambda: tg.random.normal(1e39, dtype="f4"),
        ValueError,
        "finite in float32",
    ),
    "normal loc beyond float64": (
        lambda: tg.random.normal(10**400),
        ValueError,
        "finite in float64",
    ),
    "normal loc an array": (lambda: tg.random.normal([0.0, 1.0]), TypeError, "loc \\+ scale \\*"),
    "normal loc a tensor": (
        lambda: tg.random.normal(tg.param(1.0)),
        TypeError,
        "loc \\+ scale \\* tg.random.normal",
    ),
    "normal scale a dual": (lambda: tg.random.normal(0, tg.Dual(1.0, 1.0)), TypeError, "Dual"),
    "normal loc a string": (lambda: tg.random.normal("1"), TypeError, "'1' for 'loc'"),
    "normal size negative": (lambda: tg.random.normal(size=(2, -1)), ValueError, "not negative"),
    "normal size a float": (lambda: tg.random.normal(size=2.0), TypeError, "for 'size'"),
    "normal float16": (lambda: tg.random.normal(dtype=np.float16), TypeError, "float32 or"),
    "normal int": (lambda: tg.random.normal(dtype=int), TypeError, "float32 or float64"),
    "normal no dtype": (lambda: tg.random.normal(dtype="abc"), TypeError, "dtype 'abc'"),
    "uniform turned": (lambda: tg.random.uniform(1, 0), ValueError, "low <= high"),
    "uniform infinite": (lambda: tg.random.uniform(0, np.inf), ValueError, "high=inf"),
    "uniform too wide": (lambda: tg.random.uniform(-1e308, 1e308), ValueError, "high - low"),
    "uniform low a tensor": (lambda: tg.random.uniform(tg.tensor(0.0)), TypeError, "high - low"),
    "integers empty": (lambda: tg.random.integers(3, 3), ValueError, "low < high"),
    "integers of none": (lambda: tg.random.integers(0), ValueError, "low < high"),
    "integers too large": (lambda: tg.random.integers(2**64), ValueError, "64 bits"),
    "integers float": (lambda: tg.random.integers(1.5), TypeError, "an integer"),
    "permutation negative": (lambda: tg.random.permutation(-1), ValueError, "not negative"),
    "permutation array": (lambda: tg.random.permutation([1, 2]), TypeError, "len\\(x\\)"),
    "mask p too large": (lambda: tg.random.dropout_mask(3, 1.1), ValueError, "p=1.1"),
    "mask p negative": (lambda: tg.random.dropout_mask(3, -0.1), ValueError, "in \\[0, 1\\]"),
    "mask p NaN": (lambda: tg.random.dropout_mask(3, np.nan), ValueError, "p=nan"),
    "mask p none": (lambda: tg.random.dropout_mask(3, None), TypeError, "None for 'p'"),
    "mask dtype": (lambda: tg.random.dropout_mask(3, 0.5, int), TypeError, "float32 or"),
    "seed negative": (lambda: tg.random.seed(-1), ValueError, "n=-1"),
    "seed float": (lambda: tg.random.seed(1.0), TypeError, "an integer"),
    "seed none": (lambda: tg.random.seed(None), TypeError, "an integer"),
    "state none": (lambda: tg.random.set_state(None), TypeError, "a dict"),
    "state empty": (lambda: tg.random.set_state({}), ValueError, "PCG64"),
    "state of another": (
        lambda: tg.random.set_state(np.random.MT19937(1).state),
        ValueError,
        "PCG64",
    ),
    "state half": (
        lambda: tg.random.set_state({"bit_generator": "PCG64"}),
        ValueError,
        "get_state",
    ),
    "state fraction": (
        lambda: tg.random.set_state(state_with(state={"state": 1.5, "inc": 3})),
        ValueError,
        "get_state",
    ),
    "state negative": (
        lambda: tg.random.set_state(state_with(state={"state": -1, "inc": 3})),
        ValueError,
        "get_state",
    ),
    "state text": (lambda: tg.random.set_state(state_with(has_uint32="a")), ValueError, "get_st"),
    "state and more": (lambda: tg.random.set_state(state_with(more=1)), ValueError, "get_state"),
    "dropout p": (lambda: tg.dropout([1.0], 2), ValueError, "dropout: received p=2"),
    "dropout p a tensor": (lambda: tg.dropout([1.0], tg.tensor(0.5)), TypeError, "tg.where"),
    "dropout training": (lambda: tg.dropout([1.0], 0.5, "eval"), TypeError, "expected True or F"),
    "dropout in turn": (lambda: tg.dropout([1.0], True, 0.5), TypeError, "float 0.5 for 'training"),
    "dropout of text": (lambda: tg.dropout("a"), TypeError, "dropout: received"),
    "dropout of ragged": (lambda: tg.dropout([[1.0], [1.0, 2.0]]), ValueError, "ragged"),
    "dropout of a Value": (lambda: tg.dropout(tg.Value(1.0)), TypeError, "dropout"),
}


@in_one("name", REFUSED)
def test_what_is_refused_says_so_and_leaves_the_stream_where_it_was(name):
    call, error, message = REFUSED[name]
    before = tg.random.get_state()
    with pytest.raises(error, match=message) as caught:
        call()
    assert __file__ in str(caught.value)
    assert tg.random.get_state() == before


@pytest.mark.parametrize("size", [2**45, 2**62])
def test_a_draw_that_does_not_fit_into_memory_leaves_the_stream_where_it_was(size):
    before = tg.random.get_state()
    for draw in (tg.random.normal, tg.random.uniform):
        with pytest.raises((ValueError, MemoryError)):
            draw(size=size)
    assert tg.random.get_state() == before


# ------------------------------------------------------------------ threads and processes


@pytest.fixture
def restless():
    """Switch threads as often as Python can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def test_threads_share_the_stream_and_none_gets_a_number_twice(restless):
    found = [[] for _ in range(8)]

    def draw(mine):
        for _ in range(200):
            mine.append(tg.random.uniform(size=7))
            tg.random.get_state()

    threads = [threading.Thread(target=draw, args=(mine,)) for mine in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rng = np.random.default_rng(SEED)
    together = np.sort(np.concatenate([np.concatenate(mine) for mine in found]))
    np.testing.assert_array_equal(together, np.sort(rng.uniform(size=8 * 200 * 7)))
    assert tg.random.get_state() == rng.bit_generator.state
    for mine in found:  # each draw is one piece of the stream
        assert all(len(set(part)) == 7 for part in mine)


def test_a_state_read_beside_a_long_draw_is_before_or_after_it():
    states = [np.random.default_rng(SEED).bit_generator.state]
    rng = np.random.default_rng(SEED)
    rng.normal(size=3_000_000)
    states.append(rng.bit_generator.state)
    thread = threading.Thread(target=lambda: tg.random.normal(size=3_000_000))
    thread.start()
    seen = [tg.random.get_state() for _ in range(20)]
    thread.join()
    assert all(state in states for state in seen)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_has_a_stream_of_its_own_even_from_amid_a_draw(run_python):
    program = """
        import os, signal, threading
        import numpy as np
        import tapegraph as tg

        tg.random.seed(0)
        busy = tg.random.generator().bit_generator.lock
        drawing = threading.Event()
        done = threading.Event()

        def draw():
            with busy:
                drawing.set()
                done.wait()

        thread = threading.Thread(target=draw)
        thread.start()
        drawing.wait()
        out, into = os.pipe()
        import warnings
        warnings.simplefilter("ignore")  # fork() beside threads
        child = os.fork()
        if child == 0:
            signal.alarm(30)  # rather than wait for ever for a lock
            first = tg.random.uniform()
            tg.random.seed(0)
            os.write(into, f"{float(first)!r} {float(tg.random.uniform())!r}".encode())
            os._exit(0)
        os.waitpid(child, 0)
        done.set()
        os.close(into)  # or reading would wait for a child that is gone
        thread.join()
        first, again = map(float, os.read(out, 100).split())
        mine = float(tg.random.uniform())
        print(first == mine, again == mine, mine == np.random.default_rng(0).uniform())
    """
    done = run_python(program)
    assert done.stdout.split() == ["False", "True", "True"], done.stderr


def test_without_a_seed_every_process_draws_others(run_python):
    program = "import tapegraph as tg; print(tg.random.normal())"
    assert run_python(program).stdout != run_python(program).stdout


def test_the_import_does_not_pay_for_numpys_random(run_python):
    program = """
        import sys, numpy
        before = "numpy.random" in sys.modules
        import tapegraph
        print(before or "numpy.random" not in sys.modules)
    """
    assert run_python(program).stdout.strip() == "True"


# ------------------------------------------------------------------ dropout


NUMBERS = np.arange(1.0, 1001.0).reshape(10, 100)


def kept(shape, p):
    """Where a generator of the test's seed keeps."""
    return np.random.default_rng(SEED).random(shape) >= p


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_dropout_forward_and_gradient(dtype, backend):
    x = tg.param(NUMBERS.astype(dtype))
    y = tg.dropout(x, 0.3)
    stays = kept(x.shape, 0.3)
    assert type(y) is tg.Tensor and y.dtype == dtype
    np.testing.assert_allclose(
        y.data, np.where(stays, NUMBERS / 0.7, 0), rtol=4 * np.finfo(dtype).eps
    )
    (y * y).sum().backward()
    assert x.grad.dtype == dtype
    want = np.where(stays, 2 * NUMBERS / 0.7**2, 0)
    np.testing.assert_allclose(x.grad, want, rtol=8 * np.finfo(dtype).eps)


def test_dropout_keeps_what_a_mask_of_the_same_seed_keeps():
    for dtype in (np.float64, np.float32):
        x = NUMBERS.astype(dtype)
        tg.random.seed(4)
        y = tg.dropout(x, 0.3).data
        tg.random.seed(4)
        np.testing.assert_array_equal(y, x * tg.random.dropout_mask(x.shape, 0.3, dtype))


def test_the_expectation_of_dropout_is_its_argument():
    x = np.array([1.0, -2.0, 5.0])
    n, p = MANY, 0.4
    mean = tg.dropout(np.broadcast_to(x, (n, 3)), p).data.mean(axis=0)
    deviation = np.abs(x) * (p / (1 - p) / n) ** 0.5
    assert (np.abs(mean - x) < 5 * deviation).all()


@pytest.mark.parametrize("how", [{"p": 0}, {"p": 0.0}, {"p": 0.5, "training": False}])
def test_where_nothing_is_dropped_it_is_the_tensor_itself_and_draws_nothing(how):
    before = tg.random.get_state()
    for x in (tg.param([1.0, 2.0]), tg.tensor([1.0]), tg.Dual([1.0], [2.0])):
        assert tg.dropout(x, **how) is x
    assert type(tg.dropout([1.0, 2.0], **how)) is tg.Tensor
    assert tg.random.get_state() == before


@pytest.mark.parametrize("p", [1, 1.0, True])
def test_where_all_is_dropped_it_is_zero_and_so_is_the_gradient(p):
    x = tg.param([1.0, -2.0])
    y = tg.dropout(x, p)
    y.backward()
    np.testing.assert_array_equal(y.data, [0.0, 0.0])
    np.testing.assert_array_equal(x.grad, [0.0, 0.0])


def test_what_is_dropped_is_zero_whatever_it_was(backend):
    x = tg.param(np.where(kept(100, 0.5), 1.0, np.inf))
    y = tg.dropout(x)
    np.testing.assert_array_equal(y.data, np.where(kept(100, 0.5), 2.0, 0.0))
    y.backward(np.where(kept(100, 0.5), 1.0, np.inf))
    np.testing.assert_array_equal(x.grad, np.where(kept(100, 0.5), 2.0, 0.0))


@pytest.mark.parametrize("data", [3.0, [], [[1, 2], [3, 4]], np.ones((0, 2), np.float32)])
def test_dropout_of_other_shapes_and_integers(data):
    data = np.asarray(data)
    y = tg.dropout(data, 0.5)
    assert y.shape == data.shape
    assert y.dtype == (data.dtype if data.dtype.kind == "f" else np.float64)
    np.testing.assert_array_equal(y.data, np.where(kept(data.shape, 0.5), data * 2.0, 0))


def test_dropout_gradients_by_finite_differences():
    state = tg.random.get_state()

    def f(x):
        tg.random.set_state(state)
        return tg.sum(tg.sin(tg.dropout(x, 0.4)))

    tg.testing.check_gradients(f, NUMBERS[0, :20] / 10)


def test_a_dual_carries_its_derivative_through_what_is_kept():
    x, t = NUMBERS[0], np.cos(NUMBERS[0])
    y = tg.dropout(tg.Dual(x, t), 0.3)
    stays = kept(x.shape, 0.3)
    np.testing.assert_allclose(y.primal.data, np.where(stays, x / 0.7, 0), rtol=1e-15)
    np.testing.assert_allclose(y.tangent.data, np.where(stays, t / 0.7, 0), rtol=1e-15)


def test_second_derivatives_go_through_what_is_kept():
    def f(x):
        tg.random.seed(SEED)
        return tg.sum(tg.dropout(x, 0.5) ** 3)

    x = np.arange(1.0, 9.0)
    want = np.where(kept(8, 0.5), 3 * 8 * 2 * x, 0)
    curved = tg.jvp(tg.grad(f), (x,), (np.ones(8),))[1]
    np.testing.assert_allclose(curved, want, rtol=1e-12)


def test_no_grad_draws_the_same_and_records_nothing():
    x = tg.param(NUMBERS)
    with tg.no_grad():
        y = tg.dropout(x, 0.3)
        z = tg.random.normal(size=3)
    assert not y.requires_grad and type(z) is np.ndarray
    tg.random.seed(SEED)
    np.testing.assert_array_equal(tg.dropout(x, 0.3).data, y.data)
    np.testing.assert_array_equal(tg.random.normal(size=3), z)


def test_a_draw_is_a_constant_of_the_tape():
    w = tg.param([1.0, 2.0, 3.0])
    z = tg.random.normal(size=3)
    loss = tg.sum(w * z)
    loss.backward()
    np.testing.assert_array_equal(w.grad, z)


# ------------------------------------------------------------------ captures


def natively(recording, leaves):
    return replay(recording.program, leaves).outputs


def as_graph(recording, leaves):
    pytest.importorskip("tensorflow")
    from tests.lowering.forward import forward

    return forward(recording)([leaves[slot] for slot in recording.program.fed])


class Recorded:
    """A function of one array captured, to be run again as a compiled one is."""

    def __init__(self, function, array):
        with Capture() as capture:
            self.x = capture.input(array)
            self.out = function(self.x)
        self.readings = capture.readings
        self.recording = capture.recording([self.out])

    def run(self, array, engine=natively):
        """Read in the order of the program what every run reads anew, and run the program."""
        nodes, program = self.recording.nodes, self.recording.program
        given = {id(self.x): array}
        for leaf, read in self.readings:
            given[id(leaf)] = np.asarray(read(), leaf.dtype)
        leaves = {s: given.get(id(nodes[s]), self.recording.values[s]) for s in program.leaves}
        (out,) = engine(self.recording, leaves)
        return np.asarray(out)


def step(x):
    """Draw in every way, with a draw in the middle that nothing reads."""
    noisy = x + tg.random.normal(0.0, 0.1, x.shape)
    tg.random.uniform(size=5)
    hidden = tg.tanh(tg.dropout(noisy, 0.3))
    shuffled = hidden[tg.random.permutation(len(x))]
    picked = tg.take(shuffled, tg.random.integers(4, size=2), axis=1)
    return picked * tg.random.uniform(1.0, 2.0) * tg.random.dropout_mask(2, 0.2)


BATCHES = [np.random.default_rng(i).normal(size=(6, 4)) for i in range(5)]


@pytest.mark.parametrize("engine", [natively, as_graph])
def test_runs_of_a_program_draw_what_eager_runs_draw(engine):
    eager = [step(tg.tensor(x)).data for x in BATCHES]
    after = tg.random.get_state()
    tg.random.seed(SEED)
    recorded = Recorded(step, BATCHES[0])
    runs = [recorded.out.numpy(), *(recorded.run(x, engine) for x in BATCHES[1:])]
    assert tg.random.get_state() == after
    for got, want in zip(runs, eager, strict=True):
        if engine is natively:
            np.testing.assert_array_equal(got, want)
        else:
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("engine", [natively, as_graph])
@pytest.mark.parametrize("draw", [*DRAWS, "dropout"])
def test_each_draw_is_a_leaf_of_which_two_runs_read_other_numbers(draw, engine):
    def f(x):
        if draw == "dropout":
            return tg.dropout(x, 0.3)
        drawn = DRAWS[draw]()
        assert type(drawn) is tg.Tensor
        return x[0, 0] * drawn

    x = np.full((3, 4), 2.0, np.float32 if "float32" in draw else np.float64)
    recorded = Recorded(f, x)
    assert [op.name for op in recorded.recording.program.ops].count("input") == 2
    first, second = recorded.run(x, engine), recorded.run(x, engine)
    tg.random.seed(SEED)
    want = [np.asarray(f_eager(draw, x)) for _ in range(3)]
    np.testing.assert_array_equal(recorded.out.numpy(), want[0])
    np.testing.assert_allclose([first, second], want[1:], rtol=1e-6 if x.itemsize == 4 else 1e-15)
    if first.size:
        assert not np.array_equal(first, second)


def f_eager(draw, x):
    return tg.dropout(x, 0.3) if draw == "dropout" else x[0, 0] * DRAWS[draw]()


def test_seeds_and_states_reach_a_program_that_is_recorded_already():
    recorded = Recorded(lambda x: x + tg.random.normal(size=3), np.zeros(3))
    tg.random.seed(11)
    rng = np.random.default_rng(11)
    np.testing.assert_array_equal(recorded.run(np.zeros(3)), rng.normal(size=3))
    tg.random.set_state(np.random.default_rng(12).bit_generator.state)
    rng = np.random.default_rng(12)
    np.testing.assert_array_equal(recorded.run(np.zeros(3)), rng.normal(size=3))


def program(f):
    return Recorded(f, np.ones(3)).recording.program


def test_programs_that_draw_alike_are_equal_and_others_are_not():
    def normal(*args):
        return program(lambda x: x * tg.random.normal(*args, size=3)).key

    def dropped(p):
        return program(lambda x: tg.dropout(x, p)).key

    assert normal(0.0, 1.0) == normal(0.0, 1.0) == normal(0, 1)
    assert len({normal(0.0, 1.0), normal(0.0, 2.0), normal(1.0, 1.0), normal(-0.0, 1.0)}) == 4
    assert program(lambda x: x * tg.random.uniform(size=3)).key != normal(0.0, 1.0)
    assert dropped(0.3) == dropped(0.3) != dropped(0.4)
    hash(normal(0.0, 1.0))


def test_a_program_shows_how_a_leaf_is_drawn_and_where():
    recorded = Recorded(lambda x: x * tg.random.normal(2.0, 0.5, 3), np.ones(3))
    text = str(recorded.recording)
    assert "draw=random.normal, loc=2.0, scale=0.5" in text
    (line,) = (line for line in text.splitlines() if "draw" in line)
    assert "test_random.py:" in line


def test_a_number_that_was_drawn_cannot_leave_the_program():
    with Capture() as capture:
        capture.input(np.ones(2))
        z = tg.random.normal(size=2)
        with pytest.raises(
            ConcretizationError, match=r"input of shape \(2,\), recorded at .*test_random.py"
        ):
            z.numpy()
        with pytest.raises(ConcretizationError, match="getitem"):
            float(z[0])
        with pytest.raises(ConcretizationError):
            np.ones(3)[tg.random.integers(3)]
        with pytest.raises(TypeError, match="integers"):
            tg.random.normal(size=tg.random.integers(3, size=2) * 1.0)
        with pytest.raises((ConcretizationError, TypeError)):
            tg.random.normal(size=tg.random.integers(1, 3))
        with pytest.raises(TypeError, match="loc \\+ scale"):
            tg.random.normal(z[0])


@pytest.mark.parametrize(
    "call",
    [
        lambda: tg.random.seed(0),
        lambda: tg.random.get_state(),
        lambda: tg.random.set_state(np.random.default_rng(0).bit_generator.state),
        lambda: tg.random.generator(),
    ],
    ids=["seed", "get_state", "set_state", "generator"],
)
def test_the_stream_itself_is_out_of_reach_inside_a_program(call):
    before = tg.random.get_state()
    with Capture(), pytest.raises(RuntimeError, match="a compiled step cannot do this"):
        call()
    assert tg.random.get_state() == before
    call()


def test_whether_to_drop_is_decided_once_in_a_program():
    with Capture() as capture:
        x = capture.input(np.ones(2))
        assert tg.dropout(x, training=False) is x
        with pytest.raises(ConcretizationError, match="bool"):
            tg.dropout(x, training=x[0] > 0)


def test_a_draw_that_is_refused_is_no_leaf():
    with Capture() as capture:
        capture.input(np.ones(2))
        with pytest.raises(ValueError, match="low <= high"):
            tg.random.uniform(2, 1)
    assert capture.readings == []


def test_gradients_flow_past_draws_where_a_program_is_recorded_whole():
    w = tg.param([1.0, 2.0, 3.0])
    with Capture():
        z = tg.random.normal(size=3)
        loss = tg.sum(w * z)
    with tg.use_backend("native"):
        loss.backward()
    np.testing.assert_array_equal(w.grad, np.random.default_rng(SEED).normal(size=3))
