"""The default dtype: what it changes, what keeps its own, and steps that are traced anew."""

import threading

import numpy as np
import pytest

import tapegraph as tg

single, double = np.dtype("float32"), np.dtype("float64")


@pytest.fixture(params=["float32", "float64"])
def default(request):
    tg.set_default_dtype(request.param)
    return np.dtype(request.param)


def test_tensors_of_python_numbers_take_it(default):
    for data in (0.1, [0.1, 2], [[0.1], (3.0,)], [], True, 3, [1, 2], np.arange(3)):
        made = tg.param(data)
        assert made.dtype == default
        np.testing.assert_array_equal(made.data, np.asarray(data, default))
    for data in (0.1, [0.1, 2], []):
        for make in (tg.tensor, tg.array):
            assert make(data).dtype == default
            np.testing.assert_array_equal(make(data).data, np.asarray(data, default))
    assert tg.tensor([1, 2]).dtype == np.int64 and tg.tensor(True).dtype == np.bool_
    assert tg.eye(2).dtype == tg.one_hot([1], 2).dtype == default
    pair = np.result_type(default, np.complex64)
    assert tg.param(1j).dtype == tg.tensor([1.0, 2j]).dtype == pair


def test_arrays_and_named_dtypes_keep_their_own(default):
    for make in (tg.param, tg.tensor):
        for kind in (np.float32, np.float64, np.complex64, np.complex128):
            assert make(np.ones(2, kind)).dtype == make(kind(1.0)).dtype == kind
            assert make([kind(1.0), kind(2.0)]).dtype == make([[np.ones(2, kind)]]).dtype == kind
            assert make(make(np.ones(2, kind)).detach()).dtype == kind
        # By way of float32 it would be another number.
        assert make(0.1, "float64").item() == make([0.1], "float64").item() == 0.1
    w = tg.param(np.zeros(2))
    w.assign([0.1, 0.2])
    np.testing.assert_array_equal(w.data, [0.1, 0.2])
    assert tg.random.normal(size=2, dtype="float32").dtype == np.float32
    assert tg.one_hot([1], 2, np.int8).dtype == np.int8


def test_draws_and_first_weights_take_it(default):
    drawing = {name: getattr(tg.random, name) for name in tg.random.__all__}
    weights = ("xavier", "kaiming", "glorot", "he", "lecun", "orthogonal")
    count = 0
    for name, draw in drawing.items():
        if name.startswith(weights):
            given = {"shape": (4, 3)}
        elif name in ("normal", "uniform", "truncated_normal"):
            given = {"size": (4, 3)}
        elif name == "dropout_mask":
            given = {"shape": (4, 3), "p": 0.5}
        else:
            continue
        count += 1
        tg.random.seed(3)
        drawn = draw(**given)
        assert drawn.dtype == default
        tg.random.seed(3)
        np.testing.assert_array_equal(drawn, draw(**given, dtype=default))
    assert count == 15


def test_a_loop_carries_floats_in_it(default):
    last, rows = tg.scan(lambda c, x: (c + x, c), 0.1, np.ones(3, np.float32))
    assert last.dtype == rows.dtype == default
    assert last.item() == np.asarray(0.1, default) + 1 + 1 + 1


def test_it_holds_in_other_threads(default):
    found = []
    thread = threading.Thread(target=lambda: found.append(tg.param(1.0).dtype))
    thread.start()
    thread.join()
    assert found == [tg.get_default_dtype()] == [default]


@pytest.mark.parametrize("wrong", [np.float16, "int64", complex, None, "no dtype", 3])
def test_what_has_no_gradients_in_it_is_refused(wrong):
    with pytest.raises(
        TypeError, match=r"^set_default_dtype: received dtype .+ float32 or float64"
    ):
        tg.set_default_dtype(wrong)
    assert tg.get_default_dtype() == np.float64


def test_a_compiled_step_is_traced_anew(backend):
    @tg.compile
    def step(scale):
        noise = tg.random.normal(size=2) * tg.tensor([0.3, 0.1])
        return noise, tg.tensor(scale) * tg.one_hot([0], 1), tg.random.uniform(size=2)

    def expected(scale, dtype):
        noise = tg.random.normal(size=2, dtype=dtype) * np.array([0.3, 0.1], dtype)
        return noise, np.array([[scale]], dtype), tg.random.uniform(size=2, dtype=dtype)

    for _ in range(2):
        for dtype in ("float32", "float64"):
            tg.set_default_dtype(dtype)
            for call in range(4):
                tg.random.seed(call)
                found = step(0.1 * call)
                tg.random.seed(call)
                for ours, theirs in zip(found, expected(0.1 * call, dtype), strict=True):
                    assert ours.dtype == dtype
                    np.testing.assert_array_equal(ours.data, theirs)
        assert step.traces == 2
    assert "float32 by default" in step.explain()
    rows = step.scan(np.array([0.1, 0.2, 0.3]))[2]
    tg.set_default_dtype("float32")
    assert (rows.dtype, step.scan(np.array([0.1, 0.2, 0.3]))[2].dtype) == (double, single)
