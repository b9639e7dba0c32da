"""What steps are given that is unusual or wrong: the numbers of eager calls, or a clear error."""

from __future__ import annotations

import collections
import dataclasses
import enum
import warnings

import numpy as np
import pytest

import tapegraph as tg
from tests.compiling.beside import agree, beside, run, standing, taken
from tests.quick import thinned

RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 6, 7))

LAYOUTS = {
    "as it is": lambda x: x.copy(),
    "read-only": lambda x: _read_only(x),
    "broadcast": lambda x: np.broadcast_to(x[:1], x.shape),
    "transposed": lambda x: np.asfortranarray(x),
    "every other": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "backwards": lambda x: x[::-1, ::-1],
    "a view with an offset": lambda x: np.pad(x, 1)[1:-1, 1:-1],
    "misaligned": lambda x: _misaligned(x),
    "big-endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
    "a memory map": lambda x: x.view(np.memmap),
    "a constant tensor": lambda x: tg.tensor(x),
    "empty": lambda x: x[:0],
    "one": lambda x: x[:1],
}


def _read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


def _misaligned(x):
    raw = np.empty(x.nbytes + 1, np.uint8)[1:]
    out = raw.view(x.dtype).reshape(x.shape)
    out[...] = x
    return out


@pytest.mark.parametrize(
    ("layout", "dtype"),
    [(layout, np.float64) for layout in LAYOUTS]
    + [pytest.param(*row.values, np.float32, marks=row.marks) for row in thinned(LAYOUTS, 4)],
)
@pytest.mark.one_in(6, of="tensorflow", start=1)
def test_a_step_takes_every_layout(layout, dtype, engine):
    """Bit for bit: the layout decides in which order sums add."""

    def make():
        w = tg.param(np.linspace(-1, 1, 7 * 4).reshape(7, 4).astype(dtype))
        optimizer = tg.SGD([w], lr=0.1, momentum=0.9)

        def step(x):
            loss = tg.sum(tg.tanh(x @ w)) + tg.sum(w * tg.sum(x * 0.1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        return step, [w, optimizer]

    calls = [(LAYOUTS[layout](x.astype(dtype)),) for x in X]
    assert beside(make, calls, engine).traces == 1


@pytest.mark.one_in(2, of="tensorflow")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_returned_of_every_layout_is_its_own_array_of_native_numbers(layout, engine):
    step = tg.compile(lambda x: (x, x.T, x[:0], x * 2.0))
    for x in X:
        given = LAYOUTS[layout](x)
        out = step(given)
        numbers = np.array(taken(given), np.float64)
        want = (numbers, numbers.T, numbers[:0], numbers * 2.0)
        for got, expected in zip(out, want, strict=True):
            assert got.dtype == np.dtype(np.float64) and got.dtype.isnative
            np.testing.assert_array_equal(got.data, expected)
            got.data[...] = 5.0
        np.testing.assert_array_equal(np.asarray(taken(given)), numbers)


@pytest.mark.one_in(2, of="tensorflow")
@pytest.mark.parametrize("change", ["strided", "empty", "0-d", "read-only", "large"])
def test_parameters_of_every_kind(change, engine):
    start = {
        "strided": np.arange(12.0).reshape(3, 4)[::-1, ::2],
        "empty": np.zeros((0, 3)),
        "0-d": np.array(2.0),
        "read-only": np.broadcast_to(np.arange(3.0), (2, 3)),
        "large": np.linspace(-1, 1, 5000),
    }[change]

    def make():
        w = tg.param(start)
        w.data = start
        optimizer = tg.Adam([w], lr=0.1)

        def step(scale):
            optimizer.zero_grad()
            loss = tg.sum((w * scale + w) ** 2)
            loss.backward()
            optimizer.step()
            return loss, w.grad

        return step, [w, optimizer]

    beside(make, [(0.5 * i,) for i in range(6)], engine)


@pytest.mark.parametrize(
    "dtype",
    ["c32", "O", "M8[s]", "m8[s]", "U3", "S3", "V4", np.longdouble],
    ids=str,
)
def test_arrays_of_no_numbers_are_refused_in_every_call(dtype, engine):
    w = tg.param([1.0, 2.0, 3.0])
    step = tg.compile(lambda x: w * x)
    for _ in range(3):
        with pytest.raises(TypeError, match="expected numbers"):
            step(np.zeros(3, dtype))
        step(np.zeros(3))


def test_structured_masked_and_matrix_arrays_are_refused(engine):
    step = tg.compile(lambda x: x * x)
    with pytest.raises(TypeError, match="expected numbers"):
        step(np.zeros(3, [("a", float)]))
    with pytest.raises(TypeError, match="masked array"):
        step(np.ma.masked_array([1.0, 2.0], [True, False]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        matrix = np.matrix([[1.0, 2.0], [3.0, 4.0]])  # whose product is not element by element
    with pytest.raises(TypeError, match=r"args\[0\]"):
        step(matrix)


class Color(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass
class Batch:
    x: object
    mean: object = dataclasses.field(init=False, default=0.0)  # which may be computed


class Parts(list):
    pass


class Two(tuple):
    def __new__(cls, a, b):
        return super().__new__(cls, (a, b))


@pytest.mark.parametrize(
    "wrong",
    [
        object(),
        Color.RED,
        Level.LOW,
        Batch(np.ones(2)),
        Parts([np.ones(2)]),
        Two(np.ones(2), 1),
        {1.5: np.ones(2)},
        {(1, 2): np.ones(2)},
        {1, 2},
        frozenset(),
        range(3),
        slice(1),
        np.ones,
        (x for x in [1]),
        collections.defaultdict(list, a=np.ones(2)),
        list,
        bytearray(b"12"),
        [[object()]],
        {"a": [object()]},
    ],
    ids=lambda w: type(w).__name__,
)
def test_arguments_and_results_of_other_kinds_are_named(wrong, engine):
    with pytest.raises(TypeError, match=r"args\[1\]"):
        tg.compile(lambda x, y: x)(np.ones(2), wrong)
    with pytest.raises(TypeError, match=r"kwargs\['y'\]"):
        tg.compile(lambda x, y: x)(np.ones(2), y=wrong)
    w = tg.param([1.0, 2.0])
    optimizer = tg.SGD([w], lr=0.1, momentum=0.5)

    @tg.compile
    def step(x):
        tg.sum(w * x).backward()
        optimizer.step()
        return [x, wrong]

    before = standing([w, optimizer])
    for _ in range(2):
        with pytest.raises(TypeError, match="the result"):
            step(np.ones(2))
        agree(standing([w, optimizer]), before, "native")


def test_a_value_is_no_argument_and_says_so(engine):
    with pytest.raises(TypeError, match=r"Value.* for args\[1\]"):
        tg.compile(lambda x, y: x)(np.ones(2), tg.Value(1.0))


def generator(x):
    yield x * 2.0


async def coroutine(x):
    return x * 2.0


async def asynchronous_generator(x):
    yield x * 2.0


@pytest.mark.parametrize("f", [generator, coroutine, asynchronous_generator])
def test_functions_whose_bodies_run_after_the_call_are_refused(f):
    with pytest.raises(TypeError, match="compile: received the (generator|asynchronous)"):
        tg.compile(f)
    with pytest.raises(TypeError, match="compile: received the (generator|asynchronous)"):
        tg.compile(max_traces=2)(f)


@pytest.mark.parametrize("wrong", [0, -1, 2.0, "8", None])
def test_bounds_that_are_none_are_refused(wrong):
    with pytest.raises(ValueError, match="max_traces"):
        tg.compile(lambda x: x, max_traces=wrong)


def test_numbers_of_numpy_as_flags_are_static_and_as_axes_say_what_they_are(engine):
    step = tg.compile(lambda x, flag: np.where(~flag, x, 0.0) if flag else -x)
    for flag, expected in [(True, 0.0), (False, -1.0)] * 3:
        assert step(np.ones(2), np.bool_(flag)).numpy().tolist() == [expected] * 2
    assert step.traces == 2
    with pytest.raises(TypeError, match="axis"):
        tg.compile(lambda x, axis: x.sum(axis=axis))(np.ones((2, 2)), np.int64(1))


def test_a_result_of_another_structure_in_the_second_call(engine):
    others = [[1], (1,), {"a": 1}, None]
    w = tg.param([1.0, 2.0])
    for first in others:
        for second in others:
            turns = iter((first, second))

            def step(x):
                with tg.no_grad():
                    w.assign((w * 0.5).detach())
                return x, next(turns)  # noqa: B023

            compiled = tg.compile(step)
            w.assign([1.0, 2.0])
            compiled(np.ones(2))
            if first is second:
                compiled(np.ones(2))
                np.testing.assert_array_equal(w.data, [0.25, 0.5])
            else:
                with pytest.raises(tg.TraceMismatchError, match="it returned"):
                    compiled(np.ones(2))
                np.testing.assert_array_equal(w.data, [0.5, 1.0])


def test_the_wrong_number_of_arguments_is_pythons_error(engine):
    step = tg.compile(lambda x: x * 2.0)
    for _ in range(2):
        for x in X[:2]:
            step(x)
        with pytest.raises(TypeError, match="positional argument"):
            step()
        with pytest.raises(TypeError, match="positional argument"):
            step(X[0], X[0])


def test_shapes_that_do_not_fit_raise_in_every_call(engine):
    w = tg.param(np.ones((7, 2)))
    step = tg.compile(lambda x: x @ w)
    for x in X:
        step(x)
        for _ in range(2):
            with pytest.raises(ValueError, match="matmul"):
                step(x[:, :3])


def test_what_is_run_twice_by_mistake_is_noticed():
    """The helper runs each call once, and its copies do not follow later writes."""
    calls = []
    w = tg.tensor(np.zeros(2))
    rows = run(lambda x: (calls.append(1), w.assign(x), w)[2], [w], [(np.ones(2),), (np.zeros(2),)])
    assert len(calls) == 2
    np.testing.assert_array_equal(rows[0][0], np.ones(2))
