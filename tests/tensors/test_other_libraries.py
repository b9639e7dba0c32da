"""Arrays and columns of other libraries are data everywhere: by what they offer, or refused."""

from __future__ import annotations

import array

import numpy as np
import pytest

import tapegraph as tg

DATA = np.array([[1.0, 2.0], [3.0, 4.5]])


def of_tensorflow(values):
    return pytest.importorskip("tensorflow").constant(values)


def variable_of_tensorflow(values):
    return pytest.importorskip("tensorflow").Variable(values)


def of_torch(values):
    return pytest.importorskip("torch").tensor(values)


def of_jax(values):
    jax = pytest.importorskip("jax")
    return jax.numpy.asarray(values, np.float32)  # all that it holds of itself


def of_pandas(values):
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(values) if np.ndim(values) == 2 else pandas.Series(values)


def of_polars(values):
    polars = pytest.importorskip("polars")
    if np.ndim(values) == 1:
        return polars.Series(values)
    return polars.DataFrame({str(i): column for i, column in enumerate(np.transpose(values))})


def of_a_buffer(values):
    return memoryview(np.array(values))


LIBRARIES = {
    "tensorflow": of_tensorflow,
    "tensorflow variable": variable_of_tensorflow,
    "torch": of_torch,
    "jax": of_jax,
    "pandas": of_pandas,
    "polars": of_polars,
    "buffer": of_a_buffer,
}
# What takes one array of data and a parameter.
FUNCTIONS = {
    "tensor": lambda x, w: tg.tensor(x) * w,
    "operator": lambda x, w: w * x,
    "function": lambda x, w: tg.subtract(x, w),
    "NumPy's": lambda x, w: np.where(np.asarray(x) > 2, w, 0.0),
    "product": lambda x, w: tg.matmul(x, w),
    "join": lambda x, w: np.concatenate([w.reshape(1, 2), tg.tensor(x)]),
    "reduction": lambda x, w: tg.sum(x) * w,
    "assignment": lambda x, w: tg.param(np.ones((2, 2))).assign(x) or w,
    "transform": lambda x, w: tg.grad(lambda x: tg.sum(x * x))(x) * w,
}
# Whose own operators come first, and know no tensors: put the tensor first.
LEFT = {name for name in LIBRARIES if name != "polars"}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_they_are_arguments_like_arrays(library, name):
    x = LIBRARIES[library](DATA)
    results = []
    for given in (x, np.asarray(x)):
        w = tg.param([1.0, -2.0])
        y = FUNCTIONS[name](given, w)
        tg.sum(y * y).backward()
        results.append((y.data, w.grad))
    np.testing.assert_array_equal(*(y for y, _ in results))
    np.testing.assert_array_equal(*(g for _, g in results))


@pytest.mark.parametrize("library", sorted(LEFT))
def test_on_the_left_of_an_operator(library):
    w = tg.param([1.0, -2.0])
    y = LIBRARIES[library](DATA) * w
    assert y.requires_grad
    np.testing.assert_array_equal(y.data, DATA * [1.0, -2.0])


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_compiled_step_takes_them_and_arrays_in_one_trace(library):
    of = LIBRARIES[library]
    w = tg.param([[1.0, -2.0]])
    step = tg.compile(lambda x, labels: tg.softmax_crossentropy(x * w, labels))
    labels = np.array([0, 1])
    for i in range(4):
        given = of(DATA + i)
        expected = tg.softmax_crossentropy(np.asarray(given) * w, labels).item()
        assert step(given, of(labels) if library != "jax" else labels).item() == expected
    assert step(np.asarray(of(DATA)), labels).item() > 0
    assert step.traces == 1


@pytest.mark.parametrize("library", [name for name in LIBRARIES if name != "tensorflow variable"])
def test_they_are_indices(library):
    if library == "jax":
        places = pytest.importorskip("jax").numpy.array([1, 0, 1])
    else:
        places = LIBRARIES[library](np.array([1, 0, 1]))
    w = tg.param([1.0, -2.0])
    for taken in (tg.gather(w, places), w[places] if library != "buffer" else w[[1, 0, 1]]):
        np.testing.assert_array_equal(taken.data, [-2.0, 1.0, -2.0])


def test_an_array_of_the_standard_library():
    w = tg.param([1.0, -2.0])
    step = tg.compile(lambda x: tg.sum(x * w))
    for _ in range(3):
        assert step(array.array("d", [3.0, 1.0])).item() == 1.0


def test_a_pipeline_of_tensorflow_feeds_a_step():
    tf = pytest.importorskip("tensorflow")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 3)), rng.normal(size=20)
    batches = tf.data.Dataset.from_tensor_slices({"x": x, "y": y}).batch(5).repeat(2)

    def trained(batches):
        w = tg.param(np.zeros(3))
        optimizer = tg.SGD([w], 0.1)

        @tg.compile
        def step(batch):
            loss = tg.mse_loss(batch["x"] @ w, batch["y"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        for batch in batches:
            step(batch)
        return w.data, step.traces

    places = [slice(i, i + 5) for i in range(0, 20, 5)] * 2
    expected, _ = trained([{"x": x[p], "y": y[p]} for p in places])
    got, traces = trained(batches)
    np.testing.assert_array_equal(got, expected)
    assert traces == 1


# ------------------------------------------------------------------ half precision


def halves(kind):
    values = np.array([1.0, -2.5, 0.099975586], np.float32)  # the last is float16's 0.1
    if kind == "float16":
        return values.astype(np.float16), values
    dtypes = pytest.importorskip("ml_dtypes")
    return values.astype(dtypes.bfloat16), values.astype(dtypes.bfloat16).astype(np.float32)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_half_precision_is_taken_as_float32(kind):
    half, same = halves(kind)
    w = tg.param(np.ones(3, np.float32))
    step = tg.compile(lambda x: x * w)
    for y in (tg.tensor(half), w * half, half * w, tg.sum(half, axis=()), *map(step, [half] * 4)):
        assert y.dtype == np.float32
        np.testing.assert_array_equal(y.data, same)
    assert step(same).dtype == np.float32
    assert step.traces == 1
    assert tg.grad(lambda x: tg.sum(x * x))(half).dtype == np.float32


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_parameters_of_half_precision_are_refused(kind):
    half, _ = halves(kind)
    for make in (
        lambda: tg.param(half),
        lambda: tg.tensor([1.0], dtype=half.dtype),
    ):
        with pytest.raises(TypeError, match=f"{kind}.*expected numbers .*float32, float64"):
            make()


# ------------------------------------------------------------------ what cannot be read


def grown(torch):
    return torch.ones(2, requires_grad=True)


def test_a_torch_tensor_that_needs_a_gradient_is_told_to_detach():
    torch = pytest.importorskip("torch")
    x = grown(torch)
    w = tg.param([1.0, 2.0])
    step = tg.compile(lambda x: tg.sum(x * w))
    for call in (lambda: w * x, lambda: x * w, lambda: tg.sum(x), lambda: step(x)):
        with pytest.raises(
            TypeError, match=r"of torch for '.*', which needs a gradient there; .* x.detach\(\)"
        ):
            call()
    assert step(x.detach()).item() == 3.0


def test_a_torch_tensor_of_bfloat16_is_told_to_be_float():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=r"tensor: received Tensor of dtype torch.bfloat16.*float"):
        tg.tensor(torch.ones(2, dtype=torch.bfloat16))


def test_a_sparse_torch_tensor_says_what_torch_says():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=r"torch says: .*to_dense\(\)"):
        tg.tensor(torch.ones(2).to_sparse())


def test_symbolic_tensors_of_tensorflow_are_refused():
    tf = pytest.importorskip("tensorflow")
    step = tg.compile(lambda x: tg.sum(x))
    for call in (tg.sum, step):
        with pytest.raises(TypeError, match=r"which is symbolic; .* tg.function\(f\)"):
            tf.function(call, autograph=False)(tf.constant([1.0, 2.0]))


def test_tracers_of_jax_say_what_jax_says():
    jax = pytest.importorskip("jax")
    with pytest.raises(TypeError, match=r"sum: received .*Tracer .* of jax .* jax says: .*traced"):
        jax.jit(tg.sum)(np.ones(2))


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_columns_of_text_are_refused(library):
    column = LIBRARIES[library](["a", "b"])
    for call in (tg.sum, tg.compile(tg.sum)):
        with pytest.raises(TypeError, match="expected numbers"):
            call(column)
