"""NumPy's own functions on tensors: what they reach, what they refuse, and in which words."""

from __future__ import annotations

import math
import operator
import re
import statistics
import warnings

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.recording import numpy_functions
from tests.quick import in_one

X = np.array([[1.0, -2.0, 3.0], [0.5, 4.0, -1.5]])
W = np.array([[2.0, 0.5, -1.0], [1.5, 1.0, 3.0]])


@pytest.fixture
def x():
    return tg.param(X)


def gradient_of(f, *arrays):
    leaves = [tg.param(a) for a in arrays]
    f(*leaves).backward()
    return [leaf.grad for leaf in leaves]


# -- ufuncs and their methods ------------------------------------------------------------------

RECORDED = numpy_functions.COUNTERPARTS
UFUNCS = [u for u in RECORDED if isinstance(u, np.ufunc) and getattr(np, u.__name__, 0)]
UFUNCS.remove(np.divmod)  # which gives two


@in_one("ufunc", UFUNCS, ids=lambda u: u.__name__)
def test_every_ufunc_of_the_table_gives_numpys_values_as_a_tensor(ufunc):
    arrays = [np.array([[0.25, 0.5, 0.75]]), np.array([[0.5], [2.0]])][: ufunc.nin]
    if ufunc is np.arccosh:
        arrays = [1.0 + arrays[0]]
    if ufunc.signature is not None:  # one of vectors and matrices, matmul's kin
        arrays = [np.eye(2) + 0.5, np.eye(2) - 0.25]
    got = ufunc(*map(tg.param, arrays))
    assert type(got) is tg.Tensor
    np.testing.assert_allclose(got.data, ufunc(*arrays), rtol=1e-14, strict=True)


PLACED = {
    "names in the same places": lambda x: np.roll(x, 1, 1),
    "the same by name": lambda x: np.roll(x, axis=1, shift=1),
    "other names in the same places": lambda x: np.where([True, False, True], x, 2.0 * x),
    "a place that is another argument's": lambda x: np.std(x, 1, None, None),
    "places beyond it": lambda x: np.std(x, 1, None, None, 1, True),
    "a name beyond it": lambda x: np.std(x, 1, ddof=1),
    "the first by name": lambda x: np.sum(a=x, axis=1),
}


@pytest.mark.parametrize("name", PLACED)
def test_arguments_are_those_of_numpys_places_and_names(name, x):
    got = PLACED[name](x)
    assert type(got) is tg.Tensor
    np.testing.assert_allclose(got.data, PLACED[name](X), rtol=1e-14, strict=True)


METHODS = {
    "add.reduce": lambda x: np.add.reduce(x),
    "add.reduce of an axis": lambda x: np.add.reduce(x, 1),
    "add.reduce of all": lambda x: np.add.reduce(x, axis=None),
    "add.reduce, keepdims": lambda x: np.add.reduce(x, axis=1, keepdims=True),
    "multiply.reduce": lambda x: np.multiply.reduce(x, axis=1),
    "maximum.reduce": lambda x: np.maximum.reduce(x),
    "minimum.reduce": lambda x: np.minimum.reduce(x, axis=1),
    "add.accumulate": lambda x: np.add.accumulate(x),
    "add.accumulate of an axis": lambda x: np.add.accumulate(x, axis=1),
    "multiply.accumulate": lambda x: np.multiply.accumulate(x, 1),
    "multiply.outer": lambda x: np.multiply.outer(x, W),
    "multiply.outer, on the right": lambda x: np.multiply.outer(W[0], x),
    "subtract.outer of a list": lambda x: np.subtract.outer([1.0, 2.0], x),
    "add.outer of a number": lambda x: np.add.outer(2.0, x),
}


@pytest.mark.parametrize("name", METHODS)
def test_ufunc_methods_that_have_a_meaning(name, x):
    got = METHODS[name](x)
    assert type(got) is tg.Tensor
    assert got.requires_grad
    np.testing.assert_allclose(got.data, METHODS[name](X), rtol=1e-14, strict=True)
    tg.testing.check_gradients(METHODS[name], X)


REFUSED_METHODS = {
    "numpy.add.reduceat": lambda x: np.add.reduceat(x, [0, 1]),
    "numpy.subtract.reduce": lambda x: np.subtract.reduce(x),
    "numpy.subtract.accumulate": lambda x: np.subtract.accumulate(x),
    "numpy.gcd.outer": lambda x: np.gcd.outer(x, x),
}


@pytest.mark.parametrize("name", REFUSED_METHODS)
def test_other_ufunc_methods_are_refused_by_name(name, x):
    with pytest.raises(TypeError, match=rf"^{name}: .*tg\.defop"):
        REFUSED_METHODS[name](x)


# -- functions without a rule ------------------------------------------------------------------

UNKNOWN = {
    "numpy.linalg.cond": lambda x: np.linalg.cond(x),
    "numpy.i0": lambda x: np.i0(x),
    "numpy.gcd": lambda x: np.gcd(x, 2),
    "numpy.polyfit": lambda x: np.polyfit(x[0], x[1], 1),
    "numpy.frexp": lambda x: np.frexp(x),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_function_without_a_rule_says_its_name_and_what_to_do(name, x):
    with pytest.raises(TypeError) as caught:
        UNKNOWN[name](x)
    message = str(caught.value)
    assert message.startswith(f"{name}: the function has no gradient")
    assert "tensor.detach().numpy()" in message
    assert "tg.defop" in message
    assert __file__ in message


def test_the_advice_works(x):
    np.testing.assert_array_equal(np.i0(x.detach().numpy()), np.i0(X))


REFUSED_ARGUMENTS = {
    "where": lambda x: np.add(x, 1.0, where=X > 0),
    "dtype": lambda x: np.multiply(x, 2.0, dtype=np.float32),
    "casting": lambda x: np.sin(x, casting="unsafe"),
    "initial": lambda x: np.sum(x, initial=3.0),
    "where of a sum": lambda x: np.sum(x, where=X > 0),
    "order": lambda x: np.reshape(x, (3, 2), order="F"),
}


@pytest.mark.parametrize("name", REFUSED_ARGUMENTS)
def test_arguments_that_would_be_ignored_are_refused(name, x):
    before = len(tg.tape())
    try:
        got = REFUSED_ARGUMENTS[name](x)
    except TypeError as error:
        assert f"{name.partition(' ')[0]}=" in str(error)
        assert len(tg.tape()) == before
    else:  # supported after all: then it is right
        np.testing.assert_allclose(got.data, REFUSED_ARGUMENTS[name](X), rtol=1e-6)


def test_numpys_defaults_may_be_written_out(x):
    np.testing.assert_array_equal(np.sum(x, axis=None, dtype=None, out=None).data, X.sum())
    np.testing.assert_array_equal(np.sum(a=x, axis=0).data, X.sum(axis=0))


SIGNATURES_OF_RESHAPE = {
    "2.0": lambda a, newshape, order="C": None,
    "2.1": lambda a, /, shape=None, order="C", *, newshape=None, copy=None: None,
    "2.5": lambda a, /, shape, order="C", *, copy=None: None,
}


@pytest.mark.parametrize("numpy", SIGNATURES_OF_RESHAPE)
def test_parameters_are_known_by_the_names_of_every_numpy(numpy, x):
    signature = SIGNATURES_OF_RESHAPE[numpy]
    signature.__name__ = "reshape"
    reshape = numpy_functions._adapted(signature, tg.reshape)
    new = "newshape" if numpy == "2.0" else "shape"
    for got in (reshape(x, (3, 2)), reshape(x, **{new: (3, -1)}), reshape(x, (3, 2), "C")):
        np.testing.assert_array_equal(got.data, X.reshape(3, 2), strict=True)
    by_columns = X.reshape((3, 2), order="F")
    np.testing.assert_array_equal(reshape(x, (3, 2), order="F").data, by_columns, strict=True)
    if numpy != "2.0":
        with pytest.raises(TypeError, match=r"^numpy\.reshape: received copy=True with a tensor"):
            reshape(x, (3, 2), copy=True)
    if numpy == "2.1":  # which has both
        np.testing.assert_array_equal(reshape(x, newshape=6).data, X.ravel(), strict=True)
        with pytest.raises(TypeError, match="newshape=6"):
            reshape(x, 6, newshape=6)


# -- functions that carry no gradient ----------------------------------------------------------

PLAIN = {
    "isnan": lambda x: np.isnan(x),
    "less": lambda x: np.less(0.0, x),
    "argmax": lambda x: np.argmax(x, axis=1),
    "argsort": lambda x: np.argsort(x),
    "nonzero": lambda x: np.nonzero(x),
    "searchsorted": lambda x: np.searchsorted([0.0, 1.0], x),
    "allclose": lambda x: np.allclose(x, X),
    "isclose": lambda x: np.isclose(X, x),
    "shape": lambda x: np.shape(x),
    "any": lambda x: np.any(x > 100),
}


@pytest.mark.parametrize("name", PLAIN)
def test_functions_without_a_gradient_give_plain_results(name, x):
    got, expected = PLAIN[name](x), PLAIN[name](X)
    assert type(got) is type(expected)
    np.testing.assert_array_equal(got, expected)


# -- in place ----------------------------------------------------------------------------------


def test_augmented_assignment_binds_a_new_tensor(x):
    y = x
    with pytest.warns(UserWarning, match="does not change"):
        y += 1.0
    y *= W
    assert y is not x
    np.testing.assert_array_equal(x.data, X)
    y.backward()
    np.testing.assert_array_equal(x.grad, W)


def _item(x):
    x[0] = 1.0


def _add_to_array(x):
    total = np.zeros(X.shape)
    total += x


def _raise_array(x):
    total = np.ones(X.shape)
    total **= x


def _add_to_item(x):
    total = np.zeros(X.shape)
    total[0] += x[0]


IN_PLACE = {
    "x[0] = 1": (_item, "tg.where"),
    "np.add(x, 1, out=x)": (lambda x: np.add(x, 1.0, out=x), "out= does not take tensors"),
    "np.add(x, 1, a)": (lambda x: np.add(x, 1.0, np.zeros(X.shape)), "out= does not take tensors"),
    "np.sum(x, out=a)": (lambda x: np.sum(x, out=np.zeros(())), "out= does not take tensors"),
    "a += x": (_add_to_array, r"a = a \+ b"),
    "a **= x": (_raise_array, r"a = a \+ b"),
    "a[0] += x[0]": (_add_to_item, r"a = a \+ b"),
    "np.put_along_axis": (
        lambda x: np.put_along_axis(x, np.zeros((1, 3), int), 1.0, 0),
        r"(np|tg)\.where",
    ),
    "np.add.at": (lambda x: np.add.at(np.zeros(2), [0], x[0, 0]), r"tg\.add_at"),
    "np.copyto": (lambda x: np.copyto(np.zeros(X.shape), x), r"(np|tg)\.where"),
    "np.put": (lambda x: np.put(x, [0], 1.0), r"(np|tg)\.where"),
    "np.fill_diagonal": (lambda x: np.fill_diagonal(x, 0.0), r"(np|tg)\.where"),
    "x.sort()": (lambda x: x.sort(), r"x = np\.sort\(x\)"),
    "x.partition(1)": (lambda x: x.partition(1), r"x = np\.partition\(x, kth\)"),
    "x.fill(0)": (lambda x: x.fill(0.0), r"np\.full_like"),
    "x.put([0], 1)": (lambda x: x.put([0], 1.0), r"np\.where"),
    "x.resize(6)": (lambda x: x.resize(6), r"np\.reshape"),
}


@in_one("kind", ["Tensor", "Dual"])
@in_one("name", IN_PLACE)
def test_writing_in_place_says_what_to_write_instead(name, kind):
    call, advice = IN_PLACE[name]
    x = tg.param(X) if kind == "Tensor" else tg.Dual(X, W)
    if kind == "Dual":
        advice = advice.replace("tg.where", "np.where")
    with pytest.raises(TypeError, match=advice):
        call(x)
    np.testing.assert_array_equal(x.data, X)


# Who calls float() or int() on what it is given; each gives the value, and no gradient.
NUMBERS = {
    "float": (float, 2.25),
    "int": (int, 2),
    "complex": (complex, 2.25),
    "math.sqrt": (math.sqrt, 1.5),
    "math.floor": (math.floor, 2),
    "math.fsum": (lambda x: math.fsum([x, 1.0]), 3.25),
    "statistics.fmean": (lambda x: statistics.fmean([x, 0.25]), 1.25),
    "np.float64": (np.float64, 2.25),
    "array[0] = x": (lambda x: stored(lambda a: a.__setitem__(0, x)), 2.25),
    "operator.setitem": (lambda x: stored(lambda a: operator.setitem(a, 0, x)), 2.25),
    "array.fill": (lambda x: stored(lambda a: a.fill(x)), 2.25),
    "np.fromiter": (lambda x: np.fromiter([x], np.float64)[0], 2.25),
}


def stored(write):
    array = np.zeros(1)
    write(array)
    return array[0]


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_loses_a_gradient_is_warned_of(name):
    convert, want = NUMBERS[name]
    with pytest.warns(tg.LostGradientWarning, match=r"tensor\.item\(\).*tg\.sin") as caught:
        assert convert(tg.param(2.25)) == want
    assert {w.filename for w in caught} <= {__file__, statistics.__file__}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert convert(tg.tensor(2.25)) == want


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_loses_a_gradient_is_an_error_under_strict(name, monkeypatch):
    monkeypatch.setenv("TAPEGRAPH_STRICT", "1")
    with pytest.raises((TypeError, ValueError)) as caught:
        NUMBERS[name][0](tg.param(2.25))
    # NumPy's own error where an element is stored; ours is its cause.
    assert "np.stack" in f"{caught.value}{caught.value.__cause__}"


@pytest.mark.parametrize("name", NUMBERS)
def test_a_dual_never_becomes_a_number(name):
    with pytest.raises((TypeError, ValueError)) as caught:
        NUMBERS[name][0](tg.Dual(2.25, 1.0))
    assert re.search(r"tg\.sin|np\.stack", f"{caught.value}{caught.value.__cause__}")


def test_a_function_of_pythons_numbers_is_not_differentiated_as_a_constant():
    with pytest.raises(TypeError, match=r"tg\.sin for math\.sin"):
        tg.grad(lambda x: math.sin(x) ** 2)(1.0)


def test_the_warning_comes_once_per_line():
    x = tg.param(2.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.resetwarnings()
        warnings.simplefilter("default")
        for _ in range(3):
            float(x)
            int(x)
    assert len(caught) == 2
    assert caught[1].lineno == caught[0].lineno + 1


# -- what is no number, and what would lose a gradient -----------------------------------------

NOT_NUMBERS = {
    "object": np.array([1, 2, 3], dtype=object),
    "<U1": np.array(["a", "b", "c"]),
    "datetime64": np.array(["2020"] * 3, dtype="M8[Y]"),
    "timedelta64": np.ones(3, dtype="m8[D]"),
    np.dtype(np.longdouble).name: np.ones(3, dtype=np.longdouble),
}
COMBINED = {
    "operator": lambda x, bad: x + bad,
    "reflected": lambda x, bad: bad * x,
    "ufunc": lambda x, bad: np.multiply(bad, x),
    "function": lambda x, bad: np.concatenate([x, bad[np.newaxis]]),
    "where": lambda x, bad: np.where(X > 0, x, bad),
}


@pytest.mark.parametrize("how", COMBINED)
@pytest.mark.parametrize("dtype", NOT_NUMBERS)
def test_arrays_of_other_than_numbers_are_refused_by_dtype(dtype, how, x):
    before = len(tg.tape())
    with pytest.raises(TypeError, match=dtype):
        COMBINED[how](x, NOT_NUMBERS[dtype])
    assert len(tg.tape()) == before


LOST = {
    "asarray": np.asarray,
    "array": np.array,
    "asarray of a dtype": lambda x: np.asarray(x, dtype=np.float32),
    "ascontiguousarray": np.ascontiguousarray,
    "array of a list": lambda x: np.array([x, x]),
    "array of a list of scalars": lambda x: np.array([x[0, 0], x[0, 1]]),
    "full": lambda x: np.full(2, x[0, 0]),
    "assignment to a slice": lambda x: np.zeros(X.shape).__setitem__(slice(None), x),
}


@pytest.mark.parametrize("name", LOST)
@pytest.mark.parametrize("kind", ["Tensor", "Dual"])
def test_an_array_never_loses_a_gradient_silently(name, kind):
    x = tg.param(X) if kind == "Tensor" else tg.Dual(X, W)
    with pytest.raises(TypeError, match=r"np\.(stack|broadcast_to).*x\.numpy\(\)"):
        LOST[name](x)


JOINED = {
    "tensor": lambda x: tg.tensor([x, x]),
    "param": lambda x: tg.param([[x[0, 0]], [2.0]]),
    "mean": lambda x: np.mean([x, x]),
    "an operand": lambda x: np.ones(2) + tg.tensor(1.0) * [x[0, 0], x[0, 1]],
}


@pytest.mark.parametrize("name", JOINED)
def test_a_list_of_tensors_is_told_to_be_stacked(name, x):
    with pytest.raises(TypeError, match=r"np\.stack"):
        JOINED[name](x)


DETACHED = {
    "tensor": lambda x: tg.tensor(x),
    "param": lambda x: tg.param(x * 2.0),
    "assign": lambda x: tg.param(X).assign(x),
    "data": lambda x: setattr(tg.param(X), "data", x),
    "grad": lambda x: setattr(tg.param(X), "grad", x),
    "seed": lambda x: (tg.param(X) * 2.0).backward(x),
}


@pytest.mark.parametrize("name", DETACHED)
def test_detaching_is_spelled(name, x):
    with pytest.raises(TypeError, match=r"tensor\.detach\(\)"):
        DETACHED[name](x)
    DETACHED[name](x.detach())


MASKED = np.ma.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], mask=[[0, 1, 0], [0, 0, 1]])


@pytest.mark.parametrize("name", ["m * x", "x * m", "np.ma.exp(x)", "np.multiply(m, x)"])
def test_masked_arrays_lose_neither_mask_nor_gradient(name, x):
    with pytest.raises(TypeError, match="mask|np.stack"):
        eval(name, {"np": np, "m": MASKED, "x": x})


def test_constants_become_arrays():
    np.testing.assert_array_equal(np.asarray(tg.tensor(X)), X)
    assert np.asarray(tg.tensor(X), dtype=np.float32).dtype == np.float32


class Series:
    """What pandas does of it: it defers to operands of a higher priority."""

    __pandas_priority__ = 3000

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype)

    def __mul__(self, other):
        if getattr(other, "__pandas_priority__", 0) > self.__pandas_priority__:
            return NotImplemented
        return [v * other for v in self.values]


@pytest.mark.parametrize("kind", ["Tensor", "Dual", "Value"])
def test_pandas_defers(kind):
    series = Series([1.0, 2.0])
    if kind == "Value":
        with pytest.raises(TypeError):
            series * tg.Value(2.0)
        return
    x = tg.param([3.0, 4.0]) if kind == "Tensor" else tg.Dual([3.0, 4.0], [1.0, 1.0])
    y = series * x
    assert type(y) is type(x)
    np.testing.assert_array_equal(y.data, [3.0, 8.0])


def test_pandas_itself_defers():
    pandas = pytest.importorskip("pandas")
    x = tg.param([3.0, 4.0])
    tg.sum(pandas.Series([1.0, 2.0]) * x).backward()
    np.testing.assert_array_equal(x.grad, [1.0, 2.0])


class Labelled(np.lib.mixins.NDArrayOperatorsMixin):
    """What xarray does: it holds arrays of any kind, and computes with them through ufuncs."""

    __array_priority__ = 50
    __arrow_c_stream__ = None  # it hands out columns, and is none

    def __init__(self, held):
        self.held = held

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.held, dtype)

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        held = (x.held if isinstance(x, Labelled) else x for x in inputs)
        return Labelled(getattr(ufunc, method)(*held, **options))


WITH_LABELS = {
    "x * l": lambda x, held: x * held,
    "l * x": lambda x, held: held * x,
    "np.multiply(x, l)": lambda x, held: np.multiply(x, held),
    "tg.mul(x, l)": lambda x, held: tg.mul(x, held),
    "l * (l * x) / l": lambda x, held: held * (held * x) / held,
    "x * (l * x) / x": lambda x, held: x * (held * x) / x,
}


@pytest.mark.parametrize("name", WITH_LABELS)
def test_wrappers_of_arrays_hold_tensors(name):
    factor = np.array([2.0, -3.0])
    f = WITH_LABELS[name]
    for x in (tg.param([3.0, 4.0]), tg.Dual([3.0, 4.0], [1.0, 1.0])):
        y = f(x, Labelled(factor))
        assert type(y) is Labelled and type(y.held) is type(x)
        np.testing.assert_allclose(y.held.data, [6.0, -12.0], rtol=1e-15)
    np.testing.assert_allclose(y.held.tangent.data, factor, rtol=1e-15)
    x = tg.param([3.0, 4.0])
    tg.sum(f(x, Labelled(factor)).held).backward()
    np.testing.assert_allclose(x.grad, factor, rtol=1e-15)


SAVED = {
    "save": lambda file, x: np.save(file, x),
    "savez": lambda file, x: np.savez(file, x=x),
    "savetxt": lambda file, x: np.savetxt(file, x),
}


@pytest.mark.parametrize("name", SAVED)
def test_saving_says_how_to_save(name, x, tmp_path):
    with pytest.raises(TypeError, match=rf"np\.{name}\(file, .*tensor\.numpy\(\)\)"):
        SAVED[name](tmp_path / "x", x)


DEFAULTS = {
    "np.sum(initial)": lambda x: np.sum(x, initial=np._NoValue),
    "np.clip": lambda x: np.clip(x, 0.0, 1.0, where=True),
    "np.exp(where, order)": lambda x: np.exp(x, where=True, order="K"[:1]),
    "np.exp(casting)": lambda x: np.exp(x, casting="same" + "_kind"),
    "np.cumsum(dtype)": lambda x: np.cumsum(x, axis=0, dtype=None),
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_default_may_be_written_out(name, x):
    assert DEFAULTS[name](x).requires_grad


def test_what_is_no_default_is_refused(x):
    with pytest.raises(TypeError, match=r"where=.*Leave where= at its default"):
        np.exp(x, where=np.array([True, False, True]))
    with pytest.raises(TypeError, match=r"casting='unsafe'"):
        np.exp(x, casting="unsafe")


def test_a_ufunc_reduces_one_number():
    x = tg.param(3.0)
    y = np.add.reduce(x) + np.multiply.reduce(x) * 2.0
    y.backward()
    assert (y.item(), x.grad) == (9.0, 3.0)


# -- duals -------------------------------------------------------------------------------------

ON_DUALS = {
    "ufunc": lambda x: np.sin(x),
    "array first": lambda x: np.multiply(W, x),
    "array's operator": lambda x: W / (x + 10.0),
    "reduction": lambda x: np.sum(x, axis=0),
    "method": lambda x: np.add.reduce(x, axis=1),
    "list": lambda x: np.concatenate([x, W], axis=1),
    "where": lambda x: np.where(X > 0, x, W),
}


@pytest.mark.parametrize("name", ON_DUALS)
def test_numpys_functions_carry_tangents(name):
    f = ON_DUALS[name]
    value, tangent = tg.jvp(f, (X,), (W,))
    np.testing.assert_allclose(value, f(X), rtol=1e-14)
    step = 6e-6
    expected = (f(X + step * W) - f(X - step * W)) / (2 * step)
    np.testing.assert_allclose(tangent, expected, rtol=1e-8, atol=1e-9)


def test_levels_nest_through_numpys_functions():
    assert tg.grad(tg.grad(np.sin))(0.5) == pytest.approx(-math.sin(0.5), rel=1e-14)
    # D(x -> x D(y -> x + y)(1))(1) = 1: the levels are told apart
    assert tg.grad(lambda x: x * tg.grad(lambda y: np.add(x, y))(1.0))(1.0) == 1.0


def test_a_tensor_and_a_dual_meet_in_a_ufunc():
    w = tg.param(3.0)
    _, tangent = tg.jvp(lambda x: np.multiply(w, np.square(x)), (2.0,), (1.0,))
    tangent.backward()
    assert (tangent.item(), w.grad) == (12.0, 4.0)


def test_a_dual_is_refused_where_a_tensor_is():
    with pytest.raises(TypeError, match=r"^numpy\.i0: "):
        tg.grad(np.i0)(1.0)
