"""The face of `Tensor`: what every property, method and conversion promises."""

from __future__ import annotations

import copy
import operator
import pickle

import numpy as np
import pytest

import tapegraph as tg
from tests.quick import in_one

DATA = np.array([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]])


# -- making leaves -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        ([1, 2], np.float64),
        ([1.5, 2], np.float64),
        (3, np.float64),
        (True, np.float64),
        (np.array([1, 2], dtype=np.int8), np.float64),
        (np.array([True, False]), np.float64),
        (np.array([1.0], dtype=np.float32), np.float32),
        (np.float32(1.0), np.float32),
        (np.array([1.0], dtype=">f8"), np.float64),
        (np.array([1.0], dtype=">f4"), np.float32),
    ],
)
def test_param_is_float(data, dtype):
    x = tg.param(data)
    assert x.dtype == dtype
    assert x.dtype.isnative
    np.testing.assert_array_equal(x.data, np.asarray(data, dtype=dtype))


@pytest.mark.parametrize("dtype", [np.float32, "float64", np.dtype("f4")])
def test_param_converts_to_a_dtype(dtype):
    assert tg.param([1, 2], dtype=dtype).dtype == np.dtype(dtype)


@pytest.mark.parametrize("dtype", [np.int32, np.float16, bool])
def test_param_refuses_other_dtypes(dtype):
    with pytest.raises(TypeError, match="param: received dtype .*float64, complex64"):
        tg.param([1.0], dtype=dtype)


@pytest.mark.parametrize("data", [[1, 2], [True, False], [1.5], np.float32([1.0])])
def test_tensor_keeps_the_dtype_numpy_would_give(data):
    c = tg.tensor(data)
    assert c.dtype == np.asarray(data).dtype
    assert not c.requires_grad
    assert c.op == "constant"


def test_tensor_converts_to_a_dtype():
    assert tg.tensor([1, 2], dtype=np.float32).dtype == np.float32


@pytest.mark.parametrize("make", [tg.param, tg.tensor])
def test_making_copies_the_array(make):
    array = DATA.copy()
    x = make(array)
    array[:] = 0.0
    np.testing.assert_array_equal(x.data, DATA)


def test_param_of_a_constant_is_a_new_leaf():
    z = tg.param(tg.tensor(DATA) * 2.0)
    assert z.op == "param"
    assert z.inputs == ()
    np.testing.assert_array_equal(z.data, 2.0 * DATA)


def test_array_layouts_give_the_same_leaf():
    for array in (np.asfortranarray(DATA), np.repeat(DATA, 2, axis=1)[:, ::2], DATA[::-1][::-1]):
        np.testing.assert_array_equal(tg.param(array).data, DATA)


# -- properties --------------------------------------------------------------------------------


def test_array_properties():
    x = tg.param(DATA, name="x")
    assert (x.shape, x.ndim, x.size, x.dtype, x.name) == ((2, 3), 2, 6, np.float64, "x")
    assert isinstance(x.data, np.ndarray)
    assert x.grad is None
    np.testing.assert_array_equal(x.T.data, DATA.T)
    assert x.T.T.shape == x.shape


def test_history_properties():
    x, c = tg.param(DATA), tg.tensor(DATA)
    y = x * 2.0
    assert (x.op, c.op, y.op) == ("param", "constant", "mul")
    assert (x.inputs, c.inputs) == ((), ())
    assert y.inputs[0] is x
    assert y.inputs[1] == 2.0
    assert (x.requires_grad, c.requires_grad, y.requires_grad) == (True, False, True)


def test_a_result_of_constants_alone_has_no_history():
    y = tg.tensor(DATA) * 2.0
    assert not y.requires_grad
    assert y.inputs == ()


def test_name_can_be_set_on_results():
    y = tg.param(1.0) * 2.0
    assert y.name is None
    y.name = "loss"
    assert y.name == "loss"
    assert "loss" in repr(y)


def test_gradient_has_the_leafs_shape_and_dtype():
    x = tg.param(DATA.astype(np.float32))
    (x * np.float64(2.0)).sum().backward()
    assert x.grad.shape == x.shape
    assert x.grad.dtype == np.float32


# -- numbers and arrays out --------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_item_of_one_element(shape):
    value = tg.param(np.full(shape, 2.5)).item()
    assert type(value) is float
    assert value == 2.5


def test_conversions_of_one_element():
    x = tg.param([-2.75])
    with pytest.warns(tg.LostGradientWarning):
        assert float(x) == -2.75
    with pytest.warns(tg.LostGradientWarning):
        assert int(x) == -2
    assert (float(tg.tensor([-2.75])), int(tg.tensor([-2.75]))) == (-2.75, -2)
    assert bool(x) is True
    assert bool(tg.tensor(0.0)) is False
    assert f"{x:.1f}" == "-2.8"


@pytest.mark.parametrize("convert", [bool, float, int, tg.Tensor.item])
@pytest.mark.parametrize("size", [0, 2])
def test_conversions_need_one_element(convert, size):
    with pytest.raises(ValueError, match=rf"shape \({size},\).*exactly one element"):
        convert(tg.param(np.ones(size)))


def test_numpy_is_an_array_of_its_own():
    x = tg.param(DATA)
    array = x.numpy()
    assert type(array) is np.ndarray
    array[:] = 0.0
    np.testing.assert_array_equal(x.data, DATA)


def test_detach_is_a_constant_of_its_own():
    x = tg.param(DATA)
    d = (x * 1.0).detach()
    assert (d.requires_grad, d.op, d.inputs) == (False, "constant", ())
    d.data[...] = 0.0
    np.testing.assert_array_equal(x.data, DATA)


def test_detach_stops_the_gradient():
    x = tg.param([3.0])
    (x * x.detach()).backward()
    np.testing.assert_array_equal(x.grad, [3.0])


@pytest.mark.parametrize("convert", [np.asarray, np.array])
def test_numpy_never_swallows_a_gradient(convert):
    x = tg.param(DATA)
    with pytest.raises(TypeError, match=r"x\.numpy\(\)"):
        convert([x, x] if convert in (np.stack, np.concatenate) else x)


def test_asarray_of_a_constant():
    array = np.asarray(tg.tensor(DATA))
    np.testing.assert_array_equal(array, DATA)
    assert np.asarray(tg.tensor([1, 2]), dtype=np.float32).dtype == np.float32


# -- assign, grads -----------------------------------------------------------------------------


def test_assign_keeps_shape_dtype_and_identity():
    x = tg.param(np.zeros((2, 2), dtype=np.float32))
    x.assign([1.0, 2.0])
    np.testing.assert_array_equal(x.data, [[1.0, 2.0], [1.0, 2.0]])
    assert x.dtype == np.float32


def test_assign_copies():
    x, value = tg.param([1.0, 2.0]), np.array([3.0, 4.0])
    x.assign(value)
    value[:] = 0.0
    np.testing.assert_array_equal(x.data, [3.0, 4.0])


def test_setting_data_assigns():
    x = tg.param([1.0, 2.0])
    x.data = [5.0, 6.0]
    np.testing.assert_array_equal(x.data, [5.0, 6.0])
    (x * x).sum().backward()
    np.testing.assert_array_equal(x.grad, [10.0, 12.0])


def test_augmented_assignment_to_data_works_in_place():
    x = tg.param([1.0, 2.0])
    x.data -= 0.5
    x.data *= [2.0, 4.0]
    np.testing.assert_array_equal(x.data, [1.0, 6.0])


def test_empty_leaf_can_be_written():
    x = tg.param(np.zeros((0, 3)))
    x.data[...] = 1.0
    x.data -= 1.0
    assert x.shape == (0, 3)


def test_zero_grad_keeps_none_and_zeroes_the_rest():
    x = tg.param([1.0, 2.0])
    x.zero_grad()
    assert x.grad is None
    x.sum().backward()
    x.zero_grad()
    np.testing.assert_array_equal(x.grad, [0.0, 0.0])
    (x * 3.0).sum().backward()
    np.testing.assert_array_equal(x.grad, [3.0, 3.0])


def test_grad_can_be_set():
    x = tg.param([1.0, 2.0])
    given = np.array([1.0, 1.0])
    x.grad = given
    given[:] = 7.0
    x.sum().backward()
    np.testing.assert_array_equal(x.grad, [2.0, 2.0])
    x.grad = None
    assert x.grad is None


def test_intermediate_gradients_are_kept_only_on_request():
    x = tg.param([2.0])
    a = x * 3.0
    b = a * a
    a.retain_grad()
    b.backward()
    np.testing.assert_array_equal(a.grad, [12.0])
    np.testing.assert_array_equal(x.grad, [36.0])
    with pytest.warns(UserWarning, match=r"grad: .* mul, .*retain_grad\(\)"):
        assert b.grad is None


def test_retained_root_gets_its_seed():
    y = tg.param([2.0]) * 3.0
    y.retain_grad()
    y.backward([5.0])
    np.testing.assert_array_equal(y.grad, [5.0])


def test_retain_grad_needs_a_gradient():
    with pytest.raises(RuntimeError, match="retain_grad"):
        tg.tensor(1.0).retain_grad()


# -- backward ----------------------------------------------------------------------------------


def test_seed_defaults_to_ones_and_weighs_the_output():
    x = tg.param([1.0, 2.0])
    (x * x).backward()
    np.testing.assert_array_equal(x.grad, [2.0, 4.0])
    x.grad = None
    (x * x).backward(seed=[1.0, -10.0])
    np.testing.assert_array_equal(x.grad, [2.0, -40.0])


def test_seed_may_be_a_tensor():
    x = tg.param([1.0, 2.0])
    (x * x).backward(tg.tensor([0.0, 1.0]))
    np.testing.assert_array_equal(x.grad, [0.0, 4.0])


def test_backward_twice_adds_twice():
    x = tg.param([1.0, 2.0])
    y = (x * x).sum()
    y.backward()
    tg.backward(y)
    np.testing.assert_array_equal(x.grad, [4.0, 8.0])


def test_backward_of_a_leaf_is_the_seed():
    x = tg.param([1.0, 2.0])
    x.backward()
    np.testing.assert_array_equal(x.grad, [1.0, 1.0])


def test_unreachable_leaf_keeps_none():
    x, other = tg.param(1.0), tg.param(2.0)
    (x * 2.0).backward()
    assert other.grad is None


SHARED = {
    "sum": (lambda a, b: a + b, [1.0]),
    "function of a sum": (lambda a, b: tg.exp(a + b), [np.exp(3.0)]),
    "joined": (lambda a, b: tg.concat([a, b]), [1.0]),
}


@pytest.mark.parametrize(("f", "slope"), SHARED.values(), ids=SHARED)
def test_gradients_do_not_share_memory(f, slope, backend):
    a, b = tg.param([1.0]), tg.param([2.0])
    y = f(a, b)
    seed = np.ones(y.shape)
    y.backward(seed)
    a.grad[:] = 9.0
    seed[:] = 8.0
    np.testing.assert_allclose(b.grad, slope, rtol=1e-15)
    f(a, b).backward(np.ones(y.shape))  # it is added to what there is, in place
    np.testing.assert_allclose(b.grad, 2.0 * np.array(slope), rtol=1e-15)
    np.testing.assert_allclose(a.grad, 9.0 + np.array(slope), rtol=1e-15)


PASSED_ON = {
    "itself": lambda x: x + 0.0,
    "another shape": lambda x: tg.reshape(x, (4, 3)),
    "transposed": lambda x: x.T,
    "all rows": lambda x: tg.gather(x, [0, 1, 2]),
    "joined": lambda x: tg.concat([x, x]),
    "repeated": lambda x: tg.broadcast_to(x, (2, 3, 4)),
}


@pytest.mark.parametrize("f", PASSED_ON.values(), ids=PASSED_ON)
def test_a_seed_that_changes_later_changes_no_gradient(f, backend):
    x = tg.param(np.ones((3, 4)))
    y = f(x)
    seed = np.arange(1.0, y.size + 1.0).reshape(y.shape)
    before = seed.copy()
    y.backward(seed)
    np.testing.assert_array_equal(seed, before)
    seed[...] = np.nan
    got = x.grad.copy()
    x.zero_grad()
    y = f(x)
    y.backward(before.tolist())
    np.testing.assert_array_equal(got, x.grad)
    x.grad[...] = 0.0  # which is the leaf's own, to be written to


# -- container protocol ------------------------------------------------------------------------


def test_len_and_iteration_follow_the_first_axis():
    x = tg.param(DATA)
    rows = list(x)
    assert len(x) == len(rows) == 2
    (rows[0] * 10.0 + rows[1]).sum().backward()
    np.testing.assert_array_equal(x.grad, [[10.0] * 3, [1.0] * 3])


def test_unpacking():
    a, b = tg.param([2.0, 3.0])
    assert (a.item(), b.item()) == (2.0, 3.0)


@pytest.mark.parametrize("use", [len, iter])
def test_0d_has_no_length(use):
    with pytest.raises(TypeError, match="0-d"):
        use(tg.param(1.0))


INDICES = [
    1,
    -1,
    np.int64(1),
    (0, 2),
    (),
    ...,
    None,
    slice(None, None, -1),
    slice(5, 1),
    (slice(None), slice(0, 3, 2)),
    (..., -1),
    (None, ..., None, 0),
    [1, 0, 1],
    np.array([[0, 1], [1, 1]]),
    ([0, 1], [2, 2]),
    (slice(None), [2, -1]),
    (slice(0, 1), [2, 0]),
    (0, [1, 1]),
    ([0, 1], None, [1, 2]),
    DATA > 0,
    [True, False],
    (slice(None), np.array([True, False, True])),
    np.zeros((2, 3), dtype=bool),
    [],
    True,
    np.array(False),
    np.array(1),
]


@in_one("key", INDICES, ids=str)
def test_indexing_is_numpys_with_gradients_scattered_back(key):
    x = tg.param(DATA)
    y = x[key]
    np.testing.assert_array_equal(y.data, DATA[key], strict=True)
    seed = np.arange(1.0, y.size + 1).reshape(y.shape)
    y.backward(seed)
    places = np.arange(6).reshape(2, 3)[key]
    expected = np.bincount(places.ravel(), weights=seed.ravel(), minlength=6).reshape(2, 3)
    np.testing.assert_array_equal(x.grad, expected)


def test_index_may_be_a_tensor():
    x = tg.param(DATA)
    np.testing.assert_array_equal(x[tg.tensor([1, 0])].data, DATA[[1, 0]])


class Column:
    """Values with an array, as of pandas."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype)


@pytest.mark.parametrize(
    "values", [[True, False], [[True, False, True], [False] * 3], [1, 0, 1], 1]
)
def test_index_may_be_what_has_an_array(values):
    x = tg.param(DATA)
    key = Column(values)
    np.testing.assert_array_equal(x[key].data, DATA[key], strict=True)
    tg.sum(x[key] ** 2).backward()
    chosen = np.zeros((2, 3))
    np.add.at(chosen, np.array(values), 1.0)
    np.testing.assert_array_equal(x.grad, 2 * DATA * chosen)


def test_empty_mask_selects_nothing():
    x = tg.param(np.zeros((0, 3)))
    assert x[np.zeros((0, 3), dtype=bool)].shape == (0,)


def test_elements_cannot_be_assigned():
    x = tg.param(DATA)
    with pytest.raises(TypeError, match="tg.where"):
        x[0] = 1.0


# -- operators, comparisons, identity ----------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "value", "slope"),
    [
        (lambda x: -x, -DATA, -np.ones_like(DATA)),
        (lambda x: +x, DATA, np.ones_like(DATA)),
        (abs, np.abs(DATA), np.sign(DATA)),
        (lambda x: x - x * x, DATA - DATA**2, 1 - 2 * DATA),
        (lambda x: x / x, np.ones_like(DATA), np.zeros_like(DATA)),
    ],
)
def test_operators_of_tensors(f, value, slope):
    x = tg.param(DATA)
    y = f(x)
    np.testing.assert_array_equal(y.data, value)
    y.backward()
    np.testing.assert_allclose(x.grad, slope, atol=1e-15)


def test_augmented_operators_rebind_and_record():
    x = tg.param([3.0])
    y = x
    with pytest.warns(UserWarning, match="does not change"):
        y *= 2.0
    y += x
    y -= 1.0
    y.backward()
    np.testing.assert_array_equal(x.data, [3.0])
    np.testing.assert_array_equal(x.grad, [3.0])


COMPARISONS = ["__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"]


@in_one("name", COMPARISONS)
@in_one("wrap", [tg.param, tg.tensor, np.asarray, list])
def test_comparisons_are_by_value_and_plain(name, wrap):
    left, right = np.array([1.0, 2.0, 3.0]), [3.0, 2.0, 1.0]
    got = getattr(tg.param(left), name)(wrap(right))
    assert type(got) is np.ndarray
    np.testing.assert_array_equal(got, getattr(left, name)(np.asarray(right)), strict=True)


def test_comparisons_reflect():
    x = tg.param([1.0, 2.0, 3.0])
    assert type(np.array([2.0, 2.0, 2.0]) < x) is np.ndarray
    np.testing.assert_array_equal(np.array([2.0, 2.0, 2.0]) < x, [False, False, True])
    np.testing.assert_array_equal(np.float64(2.0) == x, [False, True, False])
    np.testing.assert_array_equal(2 >= x, [True, True, False])


def test_comparisons_are_not_recorded():
    tg.tape_reset()
    x = tg.param([1.0])
    before = len(tg.tape())
    assert (x == x).all()
    assert len(tg.tape()) == before


def test_hash_is_by_identity():
    a, b = tg.param(1.0), tg.param(1.0)
    assert len({a, b, a}) == 2
    assert {a: "a", b: "b"}[b] == "b"


def test_repr_shows_value_dtype_name_and_op():
    assert repr(tg.tensor([1.0, 2.0])) == "Tensor([1., 2.])"
    assert repr(tg.param([1.0], name="w")) == "Tensor([1.], name='w', op='param')"
    assert repr(tg.param([1.0], dtype=np.float32) * 2.0) == (
        "Tensor([2.], dtype=float32, op='mul')"
    )
    assert len(repr(tg.param(np.zeros(100_000)))) < 1000


# -- pickling and copying ----------------------------------------------------------------------


@pytest.mark.parametrize("clone", [lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy])
@pytest.mark.parametrize(
    "leaf", [tg.param(np.float32([1.0, 2.0]), name="w"), tg.tensor([1, 2]), tg.tensor(True)]
)
def test_leaves_can_be_pickled_and_copied(clone, leaf):
    other = clone(leaf)
    np.testing.assert_array_equal(other.data, leaf.data, strict=True)
    assert (other.op, other.name, other.requires_grad) == (leaf.op, leaf.name, leaf.requires_grad)
    assert not np.may_share_memory(other.data, leaf.data)


def test_deepcopy_of_a_model_keeps_shared_leaves_shared():
    w = tg.param([1.0])
    first, second = copy.deepcopy([w, w])
    assert first is second is not w


def test_results_cannot_be_pickled():
    y = tg.param(1.0) * 2.0
    with pytest.raises(TypeError, match=r"result of mul.*detach"):
        pickle.dumps(y)
    tg.tape_reset()
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(y)


def test_data_can_be_pickled():
    x = tg.param(DATA)
    assert type(pickle.loads(pickle.dumps(x.data))) is np.ndarray
    assert type(copy.deepcopy(x.data)) is np.ndarray


# -- aliases -----------------------------------------------------------------------------------

POSITIVE = np.array([[0.5, 1.5], [2.5, 0.25]])


@in_one(
    ("alias", "expected"),
    [
        (lambda x: x.sum(), POSITIVE.sum()),
        (lambda x: x.sum(axis=0), POSITIVE.sum(axis=0)),
        (lambda x: x.sum(1, keepdims=True), POSITIVE.sum(axis=1, keepdims=True)),
        (lambda x: x.mean(), POSITIVE.mean()),
        (lambda x: x.mean(axis=(0, 1)), POSITIVE.mean(axis=(0, 1))),
        (lambda x: x.reshape(4), POSITIVE.reshape(4)),
        (lambda x: x.reshape(1, -1), POSITIVE.reshape(1, -1)),
        (lambda x: x.reshape((1, 4)), POSITIVE.reshape((1, 4))),
        (lambda x: x.transpose(), POSITIVE.T),
        (lambda x: x.transpose(0, 1), POSITIVE),
        (lambda x: x.transpose((1, 0)), POSITIVE.T),
        (lambda x: x.flatten(), POSITIVE.flatten()),
        (lambda x: x.flatten("F"), POSITIVE.flatten("F")),
        (lambda x: x.exp(), np.exp(POSITIVE)),
        (lambda x: x.log(), np.log(POSITIVE)),
        (lambda x: x.sqrt(), np.sqrt(POSITIVE)),
        (lambda x: x.sin(), np.sin(POSITIVE)),
        (lambda x: x.cos(), np.cos(POSITIVE)),
        (lambda x: x.tan(), np.tan(POSITIVE)),
        (lambda x: x.tanh(), np.tanh(POSITIVE)),
        (lambda x: x.relu(), np.maximum(POSITIVE, 0)),
        (lambda x: x.abs(), np.abs(POSITIVE)),
        (lambda x: x.sigmoid(), 1 / (1 + np.exp(-POSITIVE))),
        (lambda x: x.silu(), POSITIVE / (1 + np.exp(-POSITIVE))),
        (lambda x: x.softmax(axis=0), np.exp(POSITIVE) / np.exp(POSITIVE).sum(axis=0)),
    ],
)
def test_method_aliases(alias, expected):
    y = alias(tg.param(POSITIVE))
    assert y.requires_grad
    assert y.shape == np.shape(expected)
    np.testing.assert_allclose(y.data, expected, rtol=1e-14)


# -- one class, one flag -----------------------------------------------------------------------


def test_a_subclass_is_refused_with_the_reason_and_changes_nothing():
    x = tg.param(2.0)
    with pytest.raises(TypeError, match=r"class Mine cannot be a subclass of Tensor.*tg\.defop"):
        type("Mine", (tg.Tensor,), {})
    y = x * 3.0
    assert type(y) is tg.Tensor
    y.backward()
    assert x.grad == 3.0


def test_requires_grad_is_read_only():
    t = tg.tensor([1.0, 2.0])
    with pytest.raises(AttributeError, match=r"Write tensor\.requires_grad_\(True\)"):
        t.requires_grad = True
    assert not (t * 2.0).requires_grad


def test_a_constant_becomes_a_parameter():
    t = tg.tensor([1.0, 2.0])
    assert t.requires_grad_() is t
    assert (t.requires_grad, t.op) == (True, "param")
    tg.sum(t * t).backward()
    np.testing.assert_array_equal(t.grad, [2.0, 4.0])
    tg.zero_grad()  # it is among the tape's parameters
    np.testing.assert_array_equal(t.grad, 0.0)
    assert tg.SGD([t], lr=0.1).params == [t]


def test_a_frozen_parameter_has_no_gradient():
    w, x = tg.param([1.0, 2.0]), tg.param([3.0, 4.0])
    w.requires_grad_(False)
    assert (w.requires_grad, w.op) == (False, "param")
    tg.sum(w * x).backward()
    assert w.grad is None
    np.testing.assert_array_equal(x.grad, [1.0, 2.0])


@pytest.mark.parametrize("start", [tg.tensor, tg.param])
def test_what_was_recorded_before_refuses_to_lose_part_of_the_gradient(start):
    t, w = start([1.0, 2.0]), tg.param([3.0, 4.0])
    y = tg.sum((t * 2.0) * w + t)
    t.requires_grad_(not t.requires_grad)
    with pytest.raises(RuntimeError, match="changed after"):
        y.backward()
    assert w.grad is None


def test_what_cannot_become_a_parameter_says_why():
    x = tg.param(2.0)
    with pytest.raises(RuntimeError, match="requires_grad_: received a result of mul"):
        (x * 2.0).requires_grad_()
    with pytest.raises(TypeError, match=r"dtype int64.*astype"):
        tg.tensor([1, 2]).requires_grad_()
    assert x.requires_grad_() is x


# -- updates in place --------------------------------------------------------------------------

UPDATES = {
    "+=": (operator.iadd, lambda w, g: w + g),
    "-=": (operator.isub, lambda w, g: w - g),
    "*=": (operator.imul, lambda w, g: w * g),
    "/=": (operator.itruediv, lambda w, g: w / g),
    "**=": (operator.ipow, lambda w, g: w**g),
    "@=": (operator.imatmul, lambda w, g: w @ g),
}


@pytest.mark.parametrize("name", UPDATES)
def test_a_parameter_is_updated_in_place_under_no_grad(name):
    update, formula = UPDATES[name]
    start, step = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[0.5, 0.25], [2.0, 1.0]])
    w = same = tg.param(start)
    with tg.no_grad():
        w = update(w, step)
    assert w is same
    assert w.requires_grad
    np.testing.assert_array_equal(w.data, formula(start, step))
    tg.sum(w * w).backward()
    np.testing.assert_array_equal(w.grad, 2.0 * formula(start, step))


def test_pytorchs_way_to_descend_trains():
    w = tg.param(np.float32([2.0, -3.0]))
    for _ in range(100):
        w.zero_grad()
        tg.sum(w * w).backward()
        with tg.no_grad():
            w -= 0.1 * w.grad.astype(np.float64)
    assert (w.op, w.dtype) == ("param", np.float32)
    np.testing.assert_allclose(w.data, 0.0, atol=1e-8)


def test_an_update_is_seen_by_what_was_recorded_before():
    w = tg.param(2.0)
    y = w * w
    with tg.no_grad():
        w += 1.0
    with pytest.raises(RuntimeError, match="changed after"):
        y.backward()


def test_an_update_keeps_the_shape():
    w = tg.param([1.0, 2.0])
    with tg.no_grad(), pytest.raises(ValueError, match=r"shape \(3, 2\).*shape \(2,\)"):
        w += np.ones((3, 2))
    np.testing.assert_array_equal(w.data, [1.0, 2.0])


def test_an_update_outside_no_grad_makes_a_result_and_its_grad_says_so():
    x = same = tg.param(2.0, name="w")
    with pytest.warns(UserWarning, match=r"'w' does not.*with tg\.no_grad\(\): w -= step to"):
        x += 1.0
    assert x is not same
    (x * x).backward()
    assert same.grad == 6.0
    with pytest.warns(UserWarning, match=r"result of add.*x \+= 1") as caught:
        assert x.grad is None
    assert caught[0].filename == __file__


# -- what users do to .data and .grad ----------------------------------------------------------

REARRANGED = {
    "transposed": lambda a: a.T,
    "reversed": lambda a: a[::-1],
    "columns reversed": lambda a: a[:, ::-1],
    "one row": lambda a: a[0],
    "scaled": lambda a: a * 2.0,
}


@pytest.mark.parametrize("name", REARRANGED)
def test_data_is_given_a_view_of_itself(name):
    start = np.array([[1.0, 2.0], [3.0, 4.0]])
    w = tg.param(start)
    y = tg.sum(w * w)
    w.data = REARRANGED[name](w.data)
    np.testing.assert_array_equal(w.data, np.broadcast_to(REARRANGED[name](start), (2, 2)))
    with pytest.raises(RuntimeError, match="changed after"):
        y.backward()


def test_data_refuses_a_part_of_itself():
    w = tg.param([1.0, 2.0])
    with pytest.raises(ValueError, match=r"shape \(0,\)"):
        w.data = w.data[:0]
    np.testing.assert_array_equal(w.data, [1.0, 2.0])


def test_a_read_only_grad_is_added_to():
    a, b = tg.param([1.0, 2.0]), tg.param([3.0, 4.0])
    tg.sum(a * b).backward()
    before = b.grad
    before.flags.writeable = False
    tg.sum(a * b).backward()
    np.testing.assert_array_equal(a.grad, [6.0, 8.0])
    np.testing.assert_array_equal(b.grad, [2.0, 4.0])
    np.testing.assert_array_equal(before, [1.0, 2.0])


@pytest.mark.parametrize("kind", ["shape", "dtype"])
@pytest.mark.filterwarnings("ignore:Setting the:DeprecationWarning")
def test_a_grad_that_was_reshaped_is_refused_before_anything_is_written(kind):
    a, b = tg.param([1.0, 2.0]), tg.param([3.0, 4.0], name="b")
    tg.sum(a * b).backward()
    setattr(b.grad, kind, {"shape": (2, 1), "dtype": np.int64}[kind])
    with pytest.raises(RuntimeError, match=r"a \.grad of .* on param 'b'"):
        tg.sum(a * b).backward()
    np.testing.assert_array_equal(a.grad, [3.0, 4.0])


def test_who_takes_the_memory_by_dlpack_gets_a_copy():
    x = tg.param([1.0, 2.0])
    y = tg.sum(x * x)
    taken = np.from_dlpack(x.data)
    assert not np.shares_memory(taken, x.data)
    if taken.flags.writeable:  # NumPy 2.0 gives all it takes read-only
        taken[...] = 0.0
    y.backward()
    np.testing.assert_array_equal(x.grad, [2.0, 4.0])


# -- as ndarray has them -----------------------------------------------------------------------


def test_conjugates_as_methods():
    z = tg.param([1.0 + 2.0j, 3.0])
    np.testing.assert_array_equal(z.conj().numpy(), [1.0 - 2.0j, 3.0])
    tg.sum(abs(z.conjugate()) ** 2).backward()
    np.testing.assert_array_equal(z.grad, [2.0 + 4.0j, 6.0])
    x = tg.param([1.0])
    assert x.conj() is x


def test_item_of_an_element():
    x, array = tg.param([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 2.0], [3.0, 4.0]])
    for index in [(3,), (-1,), (1, 0), ((0, 1),)]:
        assert x.item(*index) == array.item(*index)
    assert type(x.item(1)) is float
    with pytest.raises(IndexError):
        x.item(4)
    dual = tg.Dual(array, np.ones((2, 2)))
    assert dual.item(1, 0) == 3.0


def test_bytes_of_an_array():
    x = tg.param(np.ones((2, 3)), dtype="float32")
    assert (x.itemsize, x.nbytes) == (4, 24)


def test_a_format_of_many_elements_says_so():
    x = tg.param([1.0, 2.0, 3.0])
    with pytest.raises(TypeError, match=r"^format: received '\.2f' for a Tensor of shape \(3,\)"):
        f"{x:.2f}"
    with pytest.raises(TypeError, match=r"^format: received '\.1e' for a Dual"):
        f"{tg.Dual([1.0, 2.0], [1.0, 1.0]):.1e}"
    assert f"{tg.sum(x):.2f}" == "6.00" and f"{x[:1]:.1f}" == "1.0"
    assert f"{x:>40}" == str(x).rjust(40)


def test_dlpack_exports_copies_of_constants():
    c = tg.tensor([1.0, 2.0])
    array = np.from_dlpack(c)
    np.testing.assert_array_equal(array, [1.0, 2.0])
    c.assign([5.0, 5.0])
    np.testing.assert_array_equal(array, [1.0, 2.0])
    with pytest.raises(TypeError, match=r"an array would lose the gradient"):
        np.from_dlpack(tg.param([1.0]))
    step = tg.compile(lambda x: tg.tensor(np.from_dlpack(x)))
    with pytest.raises(tg.ConcretizationError):
        step(np.ones(2))


def test_attributes_of_arrays():
    x = tg.param([[3.0, -1.0], [2.0, 5.0]])
    assert (x.nbytes, x.itemsize, x.item(1), x.item(1, 0)) == (32, 8, -1.0, 2.0)
    np.testing.assert_array_equal(x.flat, [3.0, -1.0, 2.0, 5.0])
    assert list(x.flat)[2].requires_grad and x.flat[3].item() == 5.0
    np.testing.assert_array_equal(x.ptp(axis=1, keepdims=True), [[4.0], [3.0]])
    np.testing.assert_array_equal(tg.gradients(x.ptp(), x)[0], [[0.0, -1.0], [0.0, 1.0]])
    z = tg.param([1.0 + 2.0j])
    np.testing.assert_array_equal(z.conj(), [1.0 - 2.0j])
    np.testing.assert_array_equal(z.conjugate(), [1.0 - 2.0j])
    with pytest.raises(AttributeError):
        x.flat = 0.0
