"""`tg.function`: the same numbers inside TensorFlow, and one set of variables."""

from __future__ import annotations

import numpy as np
import pytest
from optional import optional

import tapegraph as tg

tf = optional("tensorflow")

X = np.linspace(-1.0, 1.0, 12).reshape(6, 2)


def model():
    w = tg.param([[1.0, -1.0, 0.5], [2.0, 0.0, 1.0]], name="w")
    return w, lambda x: tg.tanh(x @ w)


def test_it_maps_a_pipeline_whose_last_batch_is_shorter():
    _, f = model()
    data = tf.data.Dataset.from_tensor_slices(X).batch(4).map(tg.function(f))
    found = list(data.as_numpy_iterator())
    assert [y.shape for y in found] == [(4, 3), (2, 3)]
    np.testing.assert_allclose(np.concatenate(found), f(X).detach().numpy(), rtol=1e-12)


def test_tensorflow_differentiates_it_inside_a_function_of_its_own():
    w, f = model()
    inside = tg.function(f)

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float64)])
    def outside(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(inside(x) ** 2)
        return tape.gradient(loss, [x, *inside.parameters.values()])

    x = tg.param(X)
    wanted = tg.gradients(tg.sum(f(x) ** 2), [x, w])
    for got, grad in zip(outside(X), wanted, strict=True):
        np.testing.assert_allclose(got, grad.numpy(), rtol=1e-9)


def test_it_takes_numbers_that_a_compiled_step_keeps_in_tensorflow():
    w, f = model()
    optimizer = tg.SGD([w], lr=0.1)

    @tg.compile
    def step(x):
        loss = tg.sum(f(x) ** 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    with tg.use_backend("tensorflow"):
        for _ in range(4):
            step(X)
    data = tf.data.Dataset.from_tensor_slices(X).batch(6).map(tg.function(f))
    np.testing.assert_allclose(next(data.as_numpy_iterator()), np.tanh(X @ w.numpy()), rtol=1e-12)


def test_it_serves_in_a_keras_layer():
    keras = pytest.importorskip("keras")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("Keras runs on another backend than TensorFlow")
    _, f = model()
    layer = keras.layers.Lambda(tg.function(f), output_shape=(3,), dtype="float64")
    given = keras.Input((2,), dtype="float64")
    net = keras.Model(given, layer(given))
    np.testing.assert_allclose(net(X).numpy(), f(X).detach().numpy(), rtol=1e-12)


def test_all_types_of_arguments_share_the_variables():
    w, f = model()
    made = tg.function(f)
    assert made.parameters == {}
    made(tf.constant(X))
    made(tf.constant(X[:1]))
    made(tf.constant(X, tf.float32))
    (variable,) = made.parameters.values()
    variable.assign_add(tf.ones_like(variable))
    moved = np.tanh(X @ (w.detach().numpy() + 1.0))
    np.testing.assert_allclose(made(X), moved, rtol=1e-12)
    np.testing.assert_allclose(w.detach().numpy()[0], [1.0, -1.0, 0.5])


def test_after_a_call_that_fails_right_arguments_work():
    w, f = model()
    bias = tg.param(0.5, name="bias")
    made = tg.function(lambda x: f(x) if x.shape[0] > 1 else f(x) + bias)
    with pytest.raises(ValueError, match=r"matmul: received shapes \(2, 5\) and \(2, 3\)"):
        made(np.ones((2, 5)))
    np.testing.assert_allclose(made(X), np.tanh(X @ w.numpy()), rtol=1e-12)
    # And a parameter that arguments of other types read first has its variable then.
    np.testing.assert_allclose(made(X[:1]), np.tanh(X[:1] @ w.numpy()) + 0.5, rtol=1e-12)
    assert list(made.parameters) == ["w", "bias"]


def test_results_keep_their_form_and_arguments_their_names():
    made = tg.function(lambda x, y: {"sum": x + y, "parts": (x, [y * 2.0])})
    found = made(y=tf.constant(2.0), x=tf.constant([1.0]))
    assert found["sum"].numpy() == [3.0]
    first, (second,) = found["parts"]
    assert (first.numpy(), second.numpy()) == ([1.0], 4.0)
    assert found["sum"].dtype == tf.float32


def test_params_are_variables_at_once():
    w, f = model()
    made = tg.function(f, {"kernel": w})
    assert list(made.parameters) == ["kernel"]
    np.testing.assert_array_equal(made.parameters["kernel"], w.detach().numpy())


@pytest.mark.parametrize("shape", [(2, None), None])
def test_other_free_axes_are_refused(shape):
    made = tg.function(lambda x: x * 2.0)
    with pytest.raises(ValueError, match=r"function: received argument 0 of shape .* the first"):
        made.get_concrete_function(tf.TensorSpec(shape, tf.float64))


def test_what_is_baked_in_is_refused():
    made = tg.function(lambda x: tg.sum(x) / len(x))
    with pytest.raises(ValueError, match=r"function: received <lambda>, which has the number 4"):
        made.get_concrete_function(tf.TensorSpec((None, 2), tf.float64))
    assert made(X).numpy() == pytest.approx(0.0)  # of a known length it is one number
