"""What a compiled step may be given: it counts by value, is fed, or is refused, in every call."""

from __future__ import annotations

import collections
import enum

import numpy as np
import pytest

import tapegraph as tg
from tests.compiling.beside import agree, taken
from tests.quick import in_one

X = np.array([1.0, 2.0, 3.0])


class Name(str):
    __slots__ = ()


class Level(enum.IntEnum):
    ONE = 1


# ------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("position", [0, 1])
@pytest.mark.parametrize("call", [1, 2, 3, 4])
def test_a_masked_array_is_refused_at_every_call(position, call):
    step = tg.compile(lambda x, y: tg.sum(x * y))
    for _ in range(call - 1):
        step(X, X)
    given = [X, X]
    given[position] = np.ma.array(X, mask=[True, False, False])
    with pytest.raises(TypeError, match=rf"args\[{position}\].*mask would be lost"):
        step(*given)
    assert step.traces == min(call - 1, 1)
    assert step(X, X).item() == 14.0


# --------------------------------------------------------------------- what counts by value


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({1: 1.0}, {True: 1.0}),
        ({0: 1.0}, {False: 1.0}),
        ({"ONE": 1.0}, {Name("ONE"): 1.0}),
        ({1: 1.0}, {Level.ONE: 1.0}),
        ([{1: X}], [{True: X}]),
    ],
)
def test_keys_that_are_equal_but_not_the_same_have_traces_of_their_own(one, other):
    def kind(d):
        (key,) = d if isinstance(d, dict) else d[0]
        return X * 10.0 if type(key) in (int, str) else X

    step = tg.compile(lambda d: tg.tensor(kind(d)) * 1.0)
    for given in (one, other, one, other, other, one):
        np.testing.assert_array_equal(taken(step(given)), kind(given))
    assert step.traces == 2


def test_keys_come_back_as_they_are():
    step = tg.compile(lambda d: dict(d))
    for _ in range(4):
        found = step({1: X, Level.ONE: X, "a": 2.0})  # the second takes the first one's place
        assert [type(key) for key in found] == [int, str]


@pytest.mark.parametrize(
    "pair",
    [
        (np.float32, np.float64),
        (np.dtype("float32"), np.dtype("float64")),
        (float, int),
        (np.float32, np.dtype("float32")),
        (np.int32, np.dtype("int64")),
    ],
)
def test_a_dtype_counts_by_value(pair):
    def cast(x, dtype):
        return np.zeros(3, dtype=dtype), x.astype(dtype)

    step = tg.compile(cast)
    for dtype in (*pair, *pair, *pair):
        agree(taken(step(X, dtype=dtype)), taken(cast(X, dtype)), "native")
    assert step.traces == 2


def test_a_class_that_is_no_dtype_is_refused():
    with pytest.raises(TypeError, match=r"compile: received type <class 'list'> for args\[0\]"):
        tg.compile(lambda kind: kind)(list)


# ---------------------------------------------------------------- arrays of other libraries


class Borrowed:
    """As the eager tensors of other libraries are: an array by its numbers alone."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return np.array(self.array, dtype)

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)


def test_an_array_of_another_library_is_taken_as_an_array():
    step = tg.compile(lambda x: np.sum(x * x))
    for i in range(4):
        assert step(Borrowed(X + i)).item() == np.sum((X + i) ** 2)
    assert step.traces == 1
    assert step(X).item() == 14.0
    assert step.traces == 1


def test_an_object_that_only_converts_to_an_array_is_refused():
    class Table:
        def __array__(self, dtype=None, copy=None):
            return X

    with pytest.raises(TypeError, match="compile: received Table"):
        tg.compile(lambda x: x)(Table())


def test_eager_tensors_of_tensorflow_are_taken_as_arrays():
    tensorflow = pytest.importorskip("tensorflow")
    step = tg.compile(lambda x, labels: np.sum(x * x) * labels[0])
    for i in range(4):
        given = tensorflow.constant(X + i), tensorflow.constant([2, 3])
        assert step(*given).item() == 2 * np.sum((X + i) ** 2)
    assert step.traces == 1


# ------------------------------------------------------------------- floats, which are fed

W = np.array([0.5, -1.5, 4.0])
SINGLE = np.array([0.5, -1.5, 4.0], np.float32)
FLOATS = {
    "tensor": lambda k: tg.tensor(k) * W,
    "tensor, float32": lambda k: tg.tensor(k, np.float32),
    "param": lambda k: tg.param(k) * W,
    "array of float32": lambda k: (SINGLE * k, k - SINGLE, SINGLE / k, k**SINGLE, SINGLE % k),
    "number of float32": lambda k: (np.float32(2.0) - k, k * np.float32(2.0)),
    "array of ints": lambda k: (np.arange(3) * k, k + np.arange(3)),
    "list": lambda k: ([1, 2] * np.ones(2)) * k,
    "clip": lambda k: (np.clip(SINGLE, -k, k), np.clip(W, 0.0, k)),
    "where": lambda k: np.where(W > k, SINGLE, k),
    "compared": lambda k: np.where(k > 1.0, W, 2.0 * W),
    "compared with float32": lambda k: (np.float32([0.7, 1.3]) == k, np.float32([0.7]) <= k),
    "isnan": lambda k: np.isnan(k),
    "isclose": lambda k: np.isclose(W, k),
    "shape": lambda k: (np.ndim(k), np.size(k), np.shape(k)),
    "divmod": lambda k: (divmod(k, 0.3), divmod(7.0, k), divmod(k, k + 1.0)),
    "floor division": lambda k: (k // 0.3, 7.0 // k, W // k, k // W, SINGLE // k, k // SINGLE),
    "mod": lambda k: (k % 0.3, 7.0 % k, W % k, k % W),
    "numpy.divmod": lambda k: (np.divmod(W, k), divmod(W, k), divmod(k, W)),
    "numpy.floor_divide": lambda k: np.floor_divide(W, k),
    "isinstance": lambda k: W if isinstance(k, float) and isinstance(k * 2, (int, float)) else k,
    "isscalar": lambda k: np.isscalar(k),
    "real": lambda k: (k.real, k.conjugate()),
    "ravel": lambda k: (np.ravel(k), np.append(W, k), np.repeat(k, 3)),
}


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.one_in(3, of="tensorflow")
def test_a_float_is_fed_wherever_it_goes(name, engine):
    f = FLOATS[name]
    step = tg.compile(f)
    for k in (0.7, 1.3, 2.0, 0.4, 0.7):
        agree(taken(step(k)), taken(f(k)), engine, f"{name} of {k}")
    assert step.traces == 1


# What would keep the first call's number, and words of what the error says to write.
FROZEN = {
    "full": (lambda k: np.full(3, k), r"k \* np.ones\(shape\)"),
    "full, float32": (lambda k: np.full(3, k, np.float32), r"k \* np.ones\(shape\)"),
    "full_like": (lambda k: np.full_like(W, k), r"k \* np.ones\(shape\)"),
    "array": (lambda k: np.array(k), r"tg.tensor\(k\)"),
    "array of a list": (lambda k: np.array([k, 2 * k]), r"np.stack\(\[k"),
    "array of numbers beside it": (lambda k: np.array([k, 1.0]), r"np.stack\(\[k"),
    "tensor of a list": (lambda k: tg.tensor([k, 2.0]), r"np.stack\(\[k"),
    "param of a list": (lambda k: tg.param([k, k]), r"np.stack\(\[k"),
    "float64": (lambda k: np.float64(k), r"tg.tensor\(k\)"),
    "float32": (lambda k: np.float32(k), r"tg.tensor\(k\)"),
    "concatenate": (lambda k: np.concatenate([[k], [1.0]]), r"np.stack\(\[k"),
    "diag": (lambda k: np.diag([k, k]), r"np.stack\(\[k"),
    "arange": (lambda k: np.arange(0.0, k), "a float argument|the numbers of"),
    "geomspace": (lambda k: np.geomspace(1.0, k, 3), "geomspace: received a float argument"),
    "math.sin": (lambda k: __import__("math").sin(k), r"np.sqrt\(k\) for math.sqrt\(k\)"),
    "math.floor": (lambda k: __import__("math").floor(k), r"np.sqrt\(k\) for math.sqrt\(k\)"),
    "math.trunc": (lambda k: __import__("math").trunc(k), r"np.sqrt\(k\) for math.sqrt\(k\)"),
    "int": (lambda k: int(k), "a float argument"),
    "round": (lambda k: round(k), r"np.round\(k\)"),
    "str": (lambda k: {str(k): 1}, "str: received a float argument"),
    "format": (lambda k: f"{k:.1f}", "format: received a float argument"),
    "hash": (lambda k: {k: 1.0}, "hash: received a float argument"),
    "branch": (lambda k: 1.0 if k > 1.0 else 2.0, r"bool: received the numbers of greater"),
    "chained": (lambda k: 1.0 if 0.0 < k < 2.0 else 2.0, "bool: received the numbers of"),
    "maximum": (lambda k: max(k, 1.0), "bool: received the numbers of"),
    "truth": (lambda k: k or 1.0, "bool: received a float argument"),
    "is_integer": (lambda k: k.is_integer(), "is_integer: received a float argument"),
    "as_integer_ratio": (lambda k: k.as_integer_ratio(), "as_integer_ratio: received a float"),
    "hex": (lambda k: k.hex(), "hex: received a float argument"),
    "NumPy's random numbers": (
        lambda k: np.random.default_rng(0).normal(0.0, k, 3),
        "a float argument",
    ),
    "uniform": (lambda k: tg.random.uniform(0.0, k, 3), r"low \+ \(high - low\)"),
    "dropout": (lambda k: tg.dropout(tg.param(W), k / 2), "dropout: 'p' is a float argument"),
    "eps": (
        lambda k: tg.layer_norm(tg.param(W), 1.0, 0.0, eps=k),
        "layer_norm: 'eps' is a float argument",
    ),
    "optimizer": (lambda k: tg.SGD([tg.param(W)], lr=k), "SGD: 'lr' is a float argument"),
    "quantile": (lambda k: np.quantile(tg.param(W), k / 10), "quantile: received the numbers"),
    "pad": (lambda k: np.pad(tg.param(W), 1, constant_values=k), "received the numbers of input"),
    "fraction": (lambda k: __import__("fractions").Fraction(k), "a float argument"),
}


@in_one("name", FROZEN)
def test_a_float_that_would_be_frozen_says_what_to_write(name):
    f, words = FROZEN[name]
    for k in (0.7, 1.3):
        f(k)  # eagerly it is right
        with pytest.raises(tg.ConcretizationError, match=words):
            tg.compile(f)(k)


@pytest.mark.parametrize("write", [lambda x, k: x.__setitem__(0, k), lambda x, k: x.fill(k)])
def test_a_float_that_is_written_into_an_array_is_refused(write):
    with pytest.raises(tg.ConcretizationError, match="received a float argument"):
        tg.compile(lambda k: write(W.copy(), k))(0.7)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_float_is_assigned_to_a_parameter_of_any_shape(dtype, engine):
    p = tg.param(np.ones((2, 3), dtype))

    @tg.compile
    def step(k):
        p.assign(k)
        return p * 2.0

    for k in (0.7, 1.3, 2.0, 0.4):
        np.testing.assert_array_equal(taken(step(k)), np.full((2, 3), k, dtype) * 2)
        np.testing.assert_array_equal(p.numpy(), np.full((2, 3), k, dtype))


# ------------------------------------------------------------------------------ whole division


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_whole_divisions_of_array_arguments(dtype, engine):
    def divided(x, y):
        return x // 2, 2 // y, x // y, divmod(x, y), x % y

    step = tg.compile(divided)
    x, y = np.array([[-7.0, 1.0, 0.3, 5.5, -0.0]], dtype), np.array([[2.0], [-0.1], [0.1]], dtype)
    for i in range(4):
        agree(taken(step(x + i, y)), taken(divided(x + i, y)), engine, f"call {i + 1}")


def test_whole_divisions_of_integer_arguments(engine):
    def divided(x, y):
        return x // 2, 7 // y, x // y, divmod(x, y)

    step = tg.compile(divided)
    for i in range(4):
        given = np.array([7, -7, 0, 5]) + i, np.array([2, 3, -4, -2])
        agree(taken(step(*given)), taken(divided(*given)), engine, f"call {i + 1}")


# ----------------------------------------------------------------------------- as text


Point = collections.namedtuple("Point", "x y")


def test_arguments_are_described_by_the_functions_own_names():
    def step(x, labels, *rest, scale, training=True, **options):
        return x * 1.0

    compiled = tg.compile(step)
    compiled(X, np.array([1, 2]), [X, (1.5, None)], scale=2.0, training=False, a={"k": Point(1, X)})
    wanted = (
        "step(x: float64[3], labels: int64[2], [float64[3], (float, None)], scale: float, "
        "training=False, a={'k': Point(x=1, y=float64[3])})"
    )
    assert f"- {wanted}: " in compiled.explain()


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ((1.5,), "f(a: float)"),
        ((tg.tensor([1.0]), 3), "f(a: tensor float64[1], b=3)"),
        ((np.float32(1.0), "mean"), "f(a: float32[], b='mean')"),
        ((tg.param([1.0], name="w"),), "f(a: parameter 'w' of shape (1,))"),
        ((np.float32, True), "f(a=float32, b=True)"),
        ((np.dtype("int8"), {}), "f(a=int8, b={})"),
        (((), [X]), "f(a=(), b=[float64[3]])"),
        (((X,), [None]), "f(a=(float64[3],), b=[None])"),
    ],
)
def test_each_kind_of_argument_has_its_text(args, text, caplog):
    def f(a, b=None):
        return tg.tensor(1.0)

    step = tg.compile(f)
    with caplog.at_level("INFO", logger="tapegraph"):
        step(*args)
    assert f"compile: f: a new trace for {text}: the first call" in caplog.messages
    assert f"- {text}: the first call; 1 entries, 1 calls, recorded once" in step.explain()


def test_a_function_that_does_not_tell_its_parameters_is_described_by_position():
    class Untold:
        __signature__ = 3  # no signature
        __name__ = "untold"

        def __call__(self, x, k):
            return x * k

    step = tg.compile(Untold())
    step(X, 2)
    assert "- untold(float64[3], 2): " in step.explain()


def test_under_no_grad_it_says_so():
    step = tg.compile(lambda x: x * 2.0)
    with tg.no_grad():
        step(X)
    assert "- <lambda>(x: float64[3]), under no_grad: " in step.explain()


def test_a_method_is_described_without_its_instance():
    class Model:
        @tg.compile
        def step(self, x):
            return x * 2.0

    model = Model()
    model.step(X)
    assert "- step(x: float64[3]): " in model.step.explain()
