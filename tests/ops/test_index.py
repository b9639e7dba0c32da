"""NumPy's functions that take, sort, mask, move and cut, and every form of index, on tensors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tapegraph as tg
from tapegraph.ops import index

# The first whose np.pad takes a dict of axes.
NUMPY_2_3 = np.lib.NumpyVersion(np.__version__) >= "2.3.0"

X = np.array([[3.0, 1.0, 2.0, 1.0], [0.5, 9.0, -1.0, 4.0], [7.0, 7.0, 0.0, 6.0]])
ORDER = np.argsort(X, axis=1)
CUBE = np.arange(24.0).reshape(2, 3, 4)

CALLS = {
    "take": lambda x: np.take(x, [0, -1]),
    "take-axis": lambda x: np.take(x, indices=[[1, 2]], axis=1),
    "take-one": lambda x: np.take(x, 2),
    "take_along_axis": lambda x: np.take_along_axis(x, ORDER, axis=1),
    "take_along_axis-flat": lambda x: np.take_along_axis(x, np.array([3, 1]), axis=None),
    "compress": lambda x: np.compress([True, False, True], x, axis=0),
    "compress-short": lambda x: np.compress([0, 1], a=x, axis=1),
    "compress-flat": lambda x: np.compress([0, 1, 1], x),
    "extract": lambda x: np.extract(X > 1, x),
    "diag": lambda x: np.diag(x),
    "diag-k": lambda x: np.diag(x, k=-1),
    "diag-vector": lambda x: np.diag(x[0], 2),
    "diagflat": lambda x: np.diagflat(x[:2, :2], k=-1),
    "tril": lambda x: np.tril(x),
    "tril-k": lambda x: np.tril(x, k=-1),
    "triu": lambda x: np.triu(x, 1),
    "sort": lambda x: np.sort(x),
    "sort-axis": lambda x: np.sort(x, axis=0, kind="stable"),
    "sort-stable": lambda x: np.sort(x, stable=True),
    "sort-flat": lambda x: np.sort(x, axis=None),
    "partition": lambda x: np.partition(x, kth=1, axis=1)[:, 1],
    "partition-several": lambda x: np.partition(x, [0, 2], axis=0)[[0, 2]],
    "choose": lambda x: np.choose([2, 0, 1, 1], x),
    "choose-list": lambda x: np.choose(np.array([[0], [1]]), [x[0], 2.0 * x[1]]),
    "select": lambda x: np.select([X > 3, X > 1], [x, 2 * x]),
    "select-default": lambda x: np.select([X > 3], [x], default=5.0),
    "where": lambda x: np.where(X > 1, x, 0),
}
MOVED = {
    "insert": lambda x: np.insert(x, 1, 5.0, axis=2),
    "insert-flat": lambda x: np.insert(x, [0, 3], 2.0 * x[0, 0, :2]),
    "delete": lambda x: np.delete(x, 1, axis=1),
    "delete-mask": lambda x: np.delete(x, [True, False], axis=0),
    "repeat": lambda x: np.repeat(x, repeats=2),
    "repeat-each": lambda x: np.repeat(x, np.array([2, 0, 1]), axis=1),
    "pad": lambda x: np.pad(x, 1),
    "pad-constants": lambda x: np.pad(x, ((0, 1), (2, 0), (1, 1)), constant_values=(7, 8)),
    **({"pad-dict": lambda x: np.pad(x, {-1: (1, 2)})} if NUMPY_2_3 else {}),
    "pad-edge": lambda x: np.pad(x, pad_width=(2, 1), mode="edge"),
    "pad-reflect": lambda x: np.pad(x, 3, "reflect"),
    "pad-symmetric": lambda x: np.pad(x, 3, mode="symmetric"),
    "pad-wrap": lambda x: np.pad(x, 5, mode="wrap"),
    "pad-nothing": lambda x: np.pad(x, 0, mode="wrap"),
    "roll": lambda x: np.roll(x, 5),
    "roll-axes": lambda x: np.roll(x, shift=(1, -1), axis=(0, 2)),
    "roll-around": lambda x: np.roll(x, 4, axis=2),
    "roll-same-axis": lambda x: np.roll(x, (1, 1), axis=(2, 2)),
    "flip": lambda x: np.flip(x, axis=(0, -1)),
    "fliplr": lambda x: np.fliplr(x),
    "flipud": lambda x: np.flipud(x),
    "rot90": lambda x: np.rot90(x, k=3, axes=(1, 2)),
    "rot90-not": lambda x: np.rot90(x, 4),
}
LISTS = {
    "split": lambda x: np.split(x, 3, axis=1),
    "split-at": lambda x: np.split(x, [1, 2], 2),
    "split-at-array": lambda x: np.split(x, np.array([3, 1]), -1),
    "array_split": lambda x: np.array_split(x, 3, axis=2),
    "hsplit": lambda x: np.hsplit(x, 3),
    "vsplit": lambda x: np.vsplit(x, [1]),
    "dsplit": lambda x: np.dsplit(x, 2),
}
PLAIN = {
    "where": lambda x: np.where(x > 1),
    "where-tensor": lambda x: np.where(x),
    "nonzero": lambda x: np.nonzero(x),
    "argsort": lambda x: np.argsort(x, axis=0),
    "argmax": lambda x: np.argmax(x, axis=1),
    "argmin": lambda x: np.argmin(x),
    "argpartition": lambda x: np.argpartition(x[0], 1),
    "argwhere": lambda x: np.argwhere(x > 3),
    "searchsorted": lambda x: np.searchsorted(np.sort(X[0]), x[1]),
    "count_nonzero": lambda x: np.count_nonzero(x),
}


def over(table):
    return pytest.mark.parametrize("call", table.values(), ids=table)


every_call = pytest.mark.parametrize(
    ("call", "array"),
    [*((call, X) for call in CALLS.values()), *((call, CUBE) for call in MOVED.values())],
    ids=[*CALLS, *MOVED],
)


@every_call
def test_value_and_tape_are_those_of_numpy(call, array):
    for dtype in (np.float64, np.float32):
        out = call(tg.param(array.astype(dtype)))
        assert isinstance(out, tg.Tensor) and out.requires_grad
        np.testing.assert_array_equal(out.numpy(), call(array.astype(dtype)), strict=True)


@every_call
def test_constants_stay_constants(call, array):
    out = call(tg.tensor(array))
    assert not out.requires_grad
    np.testing.assert_array_equal(out.numpy(), call(array), strict=True)


@over(LISTS)
def test_lists_are_those_of_numpy(call):
    parts, want = call(tg.param(CUBE)), call(CUBE)
    assert type(parts) is type(want)
    for part, array in zip(parts, want, strict=True):
        np.testing.assert_array_equal(part.numpy(), array, strict=True)


@over(PLAIN)
def test_places_are_plain_arrays(call):
    np.testing.assert_equal(call(tg.param(X)), call(X))


@pytest.mark.parametrize("dtype", [np.int8, np.bool_])
def test_constants_of_other_types_keep_them(dtype):
    array = (X > 1).astype(dtype)
    for function in (np.tril, np.triu, np.diag, np.sort, np.diagflat):
        out = function(tg.tensor(array))
        np.testing.assert_array_equal(out.numpy(), function(array), strict=True)


def test_nan_sorts_last_and_keeps_its_gradient():
    x = tg.param([np.nan, 2.0, 1.0])
    out = np.sort(x)
    np.testing.assert_array_equal(out.numpy(), [1.0, 2.0, np.nan])
    out.backward([1.0, 2.0, 3.0])
    np.testing.assert_array_equal(x.grad, [3.0, 2.0, 1.0])


REFUSED = {
    "take": (lambda x: np.take(x, 12), IndexError, "index 12"),
    "take-axis": (lambda x: np.take(x, [0], axis=2), ValueError, "axis 2"),
    "take-floats": (lambda x: np.take(x, [0.5]), TypeError, "integers"),
    "topk-float": (lambda x: tg.topk(x, 1.5), TypeError, "topk: received float 1.5 for 'k'"),
    "diag-tuple": (lambda x: np.diag(x, (0, 1)), TypeError, "diag: received tuple .* for 'k'"),
    "linspace-float": (lambda x: np.linspace(x, 1, 2.5), TypeError, "linspace: .* for 'num'"),
    "one_hot-float": (lambda x: tg.one_hot([0], 2.0), TypeError, "one_hot: .* for 'num_classes'"),
    "take_along_axis": (
        lambda x: np.take_along_axis(x, np.array([0]), axis=1),
        ValueError,
        "2 axes",
    ),
    "take_along_axis-range": (
        lambda x: np.take_along_axis(x, np.array([[4]]), axis=1),
        IndexError,
        "index 4",
    ),
    "compress": (lambda x: np.compress(X > 1, x), ValueError, "one axis"),
    "compress-beyond": (lambda x: np.compress([0, 0, 0, 1], x, 0), IndexError, "index 3"),
    "diag": (lambda x: np.diag(x[None]), ValueError, "vector or a matrix"),
    "tril": (lambda x: np.tril(x[0, 0]), ValueError, "at least one axis"),
    "sort": (lambda x: np.sort(x, axis=2), ValueError, "axis 2"),
    "partition": (lambda x: np.partition(x, 4), ValueError, "kth 4"),
    "choose": (lambda x: np.choose([3], x), ValueError, "choice 3 of 3"),
    "choose-floats": (lambda x: np.choose([0.5], x), TypeError, "integers"),
    "select": (lambda x: np.select([X > 1], [x, x]), ValueError, "one choice per condition"),
    "select-none": (lambda x: index.select([], []), ValueError, "0 conditions"),
    "select-numbers": (lambda x: np.select([X], [x]), TypeError, "bools"),
}


@pytest.mark.parametrize(("call", "kind", "message"), REFUSED.values(), ids=REFUSED)
def test_what_numpy_refuses_is_refused_with_a_message(call, kind, message):
    with pytest.raises(kind, match=message):
        call(tg.param(X))


REFUSED_MOVES = {
    "split": (lambda x: np.split(x, 2, 1), "array_split"),
    "array_split": (lambda x: np.array_split(x, 0), "0 parts"),
    "hsplit": (lambda x: np.hsplit(x[0, 0, 0], 1), "at least 1 axes"),
    "vsplit": (lambda x: np.vsplit(x[0, 0], 1), "at least 2 axes"),
    "dsplit": (lambda x: np.dsplit(x[0], 1), "at least 3 axes"),
    "repeat": (lambda x: np.repeat(x, [1, 2], 1), "3 of them"),
    "pad-mode": (lambda x: np.pad(x, 1, mode="mean"), "mode 'mean'"),
    "pad-odd": (lambda x: np.pad(x, 1, mode="reflect", reflect_type="odd"), "'odd'"),
    "pad-negative": (lambda x: np.pad(x, -1), "0 or more"),
    "pad-axes": (lambda x: np.pad(x, ((1, 1), (2, 2))), "3 axes"),
    "pad-empty": (lambda x: np.pad(x[:0], 1, mode="edge"), "empty axis 0"),
    "roll": (lambda x: np.roll(x, (1, 2, 3), (0, 1)), "as many shifts"),
    "flip": (lambda x: np.flip(x, 3), "axis 3"),
    "fliplr": (lambda x: np.fliplr(x[0, 0]), "at least 2 axes"),
    "rot90": (lambda x: np.rot90(x, 1, (0, 0)), "different axes"),
    "insert": (lambda x: np.insert(x, [1, 2], np.ones(3)), "broadcast_to"),
}


@pytest.mark.parametrize(("call", "message"), REFUSED_MOVES.values(), ids=REFUSED_MOVES)
def test_a_move_that_numpy_refuses_is_refused_with_a_message(call, message):
    x = tg.param(CUBE)
    with pytest.raises(ValueError, match=message):
        call(x)
    if "mode" not in message and "odd" not in message:
        with pytest.raises(ValueError):
            call(CUBE)


def test_indices_out_of_range_are_index_errors():
    x = tg.param(CUBE)
    with pytest.raises(IndexError, match=r"delete: received indices 9 of axis 1 of length 3"):
        np.delete(x, 9, axis=1)
    with pytest.raises(IndexError, match=r"insert: received indices 9 of axis 1 of length 3"):
        np.insert(x, 9, 0.0, axis=1)


def test_numbers_of_other_types_are_type_errors():
    x = tg.param(CUBE)
    with pytest.raises(TypeError, match=r"pad_width 1\.5"):
        np.pad(x, 1.5)
    with pytest.raises(TypeError, match="shift"):
        np.roll(x, 0.5)


IN_PLACE = {
    "put": (lambda x: np.put(x, 0, 1.0), "np.where"),
    "place": (lambda x: np.place(x, X > 1, 0.0), "np.where"),
    "putmask": (lambda x: np.putmask(x, X > 1, 0.0), "np.where"),
    "copyto": (lambda x: np.copyto(np.empty_like(X), x), "np.where"),
    "put_along_axis": (lambda x: np.put_along_axis(x, ORDER, 0.0, 1), "np.where"),
    "fill_diagonal": (lambda x: np.fill_diagonal(x, 0.0), "np.eye"),
    "resize": (lambda x: np.resize(x, (2, 2)), "np.tile"),
    "unique": (lambda x: np.unique(x), "return_index=True"),
}


@pytest.mark.parametrize(("call", "instead"), IN_PLACE.values(), ids=IN_PLACE)
def test_what_would_lose_a_gradient_says_what_to_write(call, instead):
    x = tg.param(X)
    with pytest.raises(TypeError, match=instead):
        call(x)
    np.testing.assert_array_equal(x.numpy(), X)


def test_arguments_that_are_not_served_are_refused():
    x = tg.param(X)
    with pytest.raises(TypeError, match="mode='clip'"):
        np.take(x, [0], mode="clip")
    with pytest.raises(ValueError, match="mode='nearest'"):
        np.choose([0], x, mode="nearest")
    with pytest.raises(TypeError, match="Leave it out"):
        np.take(x, [0], out=np.empty(1))
    with pytest.raises(TypeError, match="order='f'"):
        np.sort(x, order="f")
    with pytest.raises(TypeError, match="constant_values|lose the gradient"):
        np.pad(x, 1, constant_values=x[0, 0])


@given(st.data())
def test_pad_agrees_with_numpy(data):
    x = data.draw(hnp.arrays(np.float64, hnp.array_shapes(max_dims=3, max_side=4), unique=True))
    widths = [data.draw(st.tuples(*(st.integers(0, 6),) * 2)) for _ in range(x.ndim)]
    mode = data.draw(st.sampled_from(["constant", "edge", "reflect", "symmetric", "wrap"]))
    np.testing.assert_array_equal(
        np.pad(tg.param(x), widths, mode).numpy(), np.pad(x, widths, mode)
    )


@given(st.data())
def test_insert_agrees_with_numpy(data):
    x = np.arange(12.0).reshape(3, 4)
    axis = data.draw(st.sampled_from([None, 0, 1, -1]))
    length = 12 if axis is None else x.shape[axis]
    place = st.integers(-length, length)
    at = data.draw(st.one_of(place, st.lists(place, max_size=4)))
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=2, max_side=4))
    values = -1.0 - np.arange(float(np.prod(shape))).reshape(shape)
    try:
        want = np.insert(x, at, values, axis)
    except ValueError:
        with pytest.raises(ValueError):
            np.insert(tg.param(x), at, values, axis)
        return
    np.testing.assert_array_equal(np.insert(tg.param(x), at, values, axis).numpy(), want)


# Every form of index


@st.composite
def indices(draw, shape):
    """Draw a key of basic parts, arrays of integers and bools, new axes and one ellipsis."""
    together = draw(st.sampled_from([(), (1,), (3,), (2, 1), (2, 3), (0,)]))
    parts = []
    axis = 0
    while axis < len(shape) and draw(st.integers(0, 5)):
        length = shape[axis]
        kinds = ["slice", "slice", "mask", "list"] + ["int", "array", "numpy"] * (length > 0)
        kind = draw(st.sampled_from(kinds))
        axis += 1
        if kind == "slice":
            parts.append(draw(st.slices(length)))
        elif kind == "int":
            parts.append(draw(st.integers(-length, length - 1)))
        elif kind == "numpy":
            parts.append(np.array(draw(st.integers(0, length - 1)), dtype=np.uint8))
        elif kind == "array":
            lengths = draw(st.sampled_from([together, together, (1,), ()]))
            elements = st.integers(-length, length - 1)
            parts.append(draw(hnp.arrays(np.int64, lengths, elements=elements)))
        elif kind == "list":
            elements = st.integers(-length, length - 1) if length else st.nothing()
            size = together[-1] if together and length else 0
            parts.append(draw(st.lists(elements, min_size=size, max_size=size)))
        else:
            several = draw(st.booleans()) and axis < len(shape)
            parts.append(draw(hnp.arrays(np.bool_, shape[axis - 1 : axis + several])))
            axis += several
    for extra in draw(st.lists(st.sampled_from([None, None, True, False]), max_size=2)):
        parts.insert(draw(st.integers(0, len(parts))), extra)
    if draw(st.booleans()):
        parts.insert(draw(st.integers(0, len(parts))), ...)
    return parts[0] if len(parts) == 1 and draw(st.booleans()) else tuple(parts)


@pytest.mark.filterwarnings("ignore:Out of bound index found:DeprecationWarning")  # older NumPy's
@given(st.data())
def test_every_index_is_that_of_numpy(data):
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3))
    key = data.draw(indices(shape))
    array = np.arange(float(np.prod(shape))).reshape(shape)
    try:
        want = array[key]
    except IndexError:
        with pytest.raises(IndexError):
            tg.param(array)[key]
        return
    x = tg.param(array)
    try:
        out = x[key]
    except IndexError:
        assert want.size == 0  # NumPy does not look at places that nothing is taken from
        return
    np.testing.assert_array_equal(out.numpy(), want, strict=np.ndim(want) > 0)
    seed = 1.0 + np.arange(float(out.size)).reshape(out.shape)
    out.backward(seed)
    places = np.arange(array.size).reshape(shape)[key]
    grad = np.bincount(np.ravel(places), np.ravel(seed), minlength=array.size)
    np.testing.assert_array_equal(x.grad, grad.reshape(shape))


def test_a_step_may_be_longer_than_any_array():
    array = np.arange(3.0)
    for step in (2**63, -(2**63), 2**70):
        np.testing.assert_array_equal(tg.param(array)[::step].numpy(), array[::step])


def test_an_ellipsis_for_no_axis_still_parts_the_arrays():
    array = np.arange(12.0).reshape(3, 4)
    for key in ((None, [0, 2], ..., [1, 1]), (slice(2), ..., [0, 1]), (None, 1, ..., [0, 3])):
        np.testing.assert_array_equal(tg.param(array)[key].numpy(), array[key])


PLACES = {
    "one row": (1, X[0]),
    "repeated": (([0, 2, 0], [1, 1, 1]), np.array([1.0, 2.0, 4.0])),
    "columns": ((slice(None), [0, 0, -1]), np.full((3, 3), 0.5)),
    "mask": (X > 2, np.array(3.0)),
}


@pytest.mark.parametrize(("places", "more"), PLACES.values(), ids=PLACES)
def test_add_at_is_what_numpy_leaves_and_differentiates(places, more):
    expected = X.copy()
    np.add.at(expected, places, more)
    out = tg.add_at(tg.tensor(X), places, more)
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-15, strict=True)
    tg.testing.check_gradients(lambda x, y: tg.add_at(x, places, y) ** 2, X, more)


def test_add_at_in_a_compiled_step_takes_other_places_in_every_call():
    total = tg.tensor(np.zeros(4, np.float32))

    @tg.compile
    def step(places, y):
        total.assign(tg.add_at(total, places, y))

    rng, expected = np.random.default_rng(0), np.zeros(4, np.float32)
    for _ in range(6):
        places, y = rng.integers(0, 4, 5), rng.integers(0, 9, 5).astype(np.float32)
        step(places, y)
        np.add.at(expected, places, y)
        np.testing.assert_array_equal(total.numpy(), expected, strict=True)
    assert step.traces == 1
    assert total.dtype == np.float32


def test_add_at_refuses_what_would_lose_a_part_and_numpy_says_what_to_write():
    with pytest.raises(TypeError, match=r"add_at: received dtype float64 for 'b'; expected int64"):
        tg.add_at([1, 2], 0, 1.5)
    with pytest.raises(IndexError, match=r"^add_at: received index 7 for axis 0 of length 3"):
        tg.add_at(np.ones((3, 2)), [0, 7], 1.0)
    with pytest.raises(ValueError, match=r"^add_at: received shape \(3,\) and new shape \(2,\)"):
        tg.add_at(np.ones((3, 2)), 0, np.ones(3))
    with pytest.raises(IndexError, match="index 3"):
        tg.add_at(X, 3, 1.0)
    for numpy in (np.add, np.subtract):
        with pytest.raises(TypeError, match=r"tg\.add_at\(x, indices, values\)"):
            numpy.at(tg.param(X), 0, 1.0)


def test_windows_that_do_not_fit_are_refused():
    x = tg.param(np.ones((3, 4)))
    for shape, axis, text in (
        ((4, 1), None, r"window_shape \(4, 1\) for shape \(3, 4\)"),
        ((-1, 1), None, "no longer than their axes"),
        (2, None, "for 2 axes; expected a length for each axis"),
        ((2, 2), 0, "for 1 axes"),
    ):
        with pytest.raises(ValueError, match=text):
            np.lib.stride_tricks.sliding_window_view(x, shape, axis)


def test_windows_in_steps_batches_and_second_derivatives():
    windows = np.lib.stride_tricks.sliding_window_view
    x = np.array([1.0, 2.0, 4.0, 3.0])
    step = tg.compile(lambda x: tg.sum(windows(x, 2) ** 2, axis=1))
    for i in range(4):
        np.testing.assert_array_equal(step(x + i), (windows(x + i, 2) ** 2).sum(1))
    rows = tg.vmap(lambda x: windows(x, 3))(np.stack([x, 2.0 * x]))
    np.testing.assert_array_equal(rows, windows(np.stack([x, 2.0 * x]), 3, 1))
    hessian = tg.hessian(lambda x: tg.sum(tg.prod(windows(x, 2), axis=1)))(x)
    np.testing.assert_array_equal(hessian, np.eye(4, k=1) + np.eye(4, k=-1))


def test_an_array_is_taken_apart():
    x = tg.param(np.arange(6.0).reshape(2, 3))
    parts = tg.unstack(x, axis=1)
    np.testing.assert_array_equal(parts[2], [2.0, 5.0])
    np.testing.assert_array_equal(
        tg.gradients(tg.sum(parts[0] * parts[2]), x)[0], [[2.0, 0.0, 0.0], [5.0, 0.0, 3.0]]
    )


RUN_WITH = {
    "compile": lambda f, places: [tg.compile(f)(i) for i in places],
    "vmap": lambda f, places: tg.vmap(f)(np.array(places)),
    "scan": lambda f, places: tg.scan(lambda c, i: (c, f(i)), 0.0, np.array(places))[1],
}


@pytest.mark.parametrize("run", RUN_WITH)
def test_an_index_into_a_plain_array_says_what_to_write(run):
    places = [np.array([2, 0]), np.array([1, 1]), np.array([0, 2])]
    for f in (lambda i: X[i], lambda i: X[:, i], lambda i: np.take(X, i, axis=1)):
        said = r"write tg\.tensor\(array\)\[i\] or tg\.take\(array, i, axis\), .*\(at .*test_index"
        with pytest.raises(tg.ConcretizationError, match=said):
            RUN_WITH[run](f, places)
    for f in (lambda i: tg.tensor(X)[:, i], lambda i: tg.take(X, i, axis=1)):
        np.testing.assert_array_equal(RUN_WITH[run](f, places), [X[:, i] for i in places])
