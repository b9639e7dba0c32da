"""What is exported runs, differentiates and trains where tapegraph cannot be imported."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from exported_models import attention, conv_net, embedding, kinks, mlp, mlp_loss
from optional import optional

import tapegraph as tg
from tapegraph.testing import PARITY_TOLERANCE

tf = optional("tensorflow")

SIZES = (1, 9)  # of none of which it was recorded
DTYPES = ("float64", "float32")


MODELS = (mlp, mlp_loss, conv_net, attention, embedding, kinks)
# One of them; all in both dtypes with --thorough.
QUICK = {(mlp_loss, "float64")}
EXPORTED = [
    pytest.param(*row, marks=[] if row in QUICK else [pytest.mark.thorough])
    for row in itertools.product(MODELS, DTYPES)
]
LOSSES = (mlp_loss, embedding)
RATE = 0.5


def differentiated(model, p, batch):
    """Results, and the gradients of the sum of all their squares, by name."""
    inputs = {name: tg.param(x) if x.dtype.kind == "f" else x for name, x in batch.items()}
    result = model(*inputs.values())
    outputs = result if isinstance(result, dict) else {"output": result}
    sources = {**p, **{k: x for k, x in inputs.items() if isinstance(x, tg.Tensor)}}
    grads = tg.gradients(sum(tg.sum(y * y) for y in outputs.values()), list(sources.values()))
    return {
        **{f"output {k}": y.detach().numpy() for k, y in outputs.items()},
        **{f"gradient {k}": g.numpy() for k, g in zip(sources, grads, strict=True)},
    }


def trained(loss, p, batch):
    """A loss, its slopes, and what it is after one step down; the parameters stay as they are."""
    value = loss(*batch.values())
    slopes = [g.numpy() for g in tg.gradients(value, list(p.values()))]
    before = [x.detach().numpy().copy() for x in p.values()]
    for x, slope in zip(p.values(), slopes, strict=True):
        x.assign(x.detach().numpy() - RATE * slope)
    after = loss(*batch.values())
    for x, array in zip(p.values(), before, strict=True):
        x.assign(array)
    named = {f"slope {k}": slope for k, slope in zip(p, slopes, strict=True)}
    return {"loss": value.detach().numpy(), "after a step": after.detach().numpy(), **named}


def exported(folder, model, dtype):
    """Export a model, and write what the child is to find there beside it."""
    rng = np.random.default_rng(len(model.__name__))
    p, f, batch = model(rng, dtype)
    tg.export(f, folder / "model", *batch(5).values())
    arrays = {}
    for n in SIZES:
        given = batch(n)
        found = {f"input {k}": x for k, x in given.items()} | differentiated(f, p, given)
        if model in LOSSES:
            found |= trained(f, p, given)
        arrays |= {f"{n} {k}": x for k, x in found.items()}
    np.savez(folder / "expected.npz", **arrays)


CHILD = r"""
import json, pathlib, sys
sys.modules["tapegraph"] = None  # importing it is an error
import numpy as np
import tensorflow as tf

def worst(got, wanted):
    # how far arrays are apart, of what the tolerance allows
    got, wanted = np.asarray(got), np.asarray(wanted)
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return f"{got.dtype}{got.shape} for {wanted.dtype}{wanted.shape}"
    relative, absolute = TOLERANCE[wanted.dtype.name]
    return float(np.max(np.abs(got - wanted) / (absolute + relative * np.abs(wanted)), initial=0))

TOLERANCE, SIZES, RATE, COMMAND = json.loads(sys.argv[2])
for folder in sorted(pathlib.Path(sys.argv[1]).glob("*-float*")):
    model = tf.saved_model.load(str(folder / "model"))
    expected = np.load(folder / "expected.npz")
    report = {}
    for n in SIZES:
        known = {k.split(" ", 1)[1]: expected[k] for k in expected if k.startswith(f"{n} ")}
        inputs = {k[6:]: tf.constant(x) for k, x in known.items() if k.startswith("input ")}
        for name in ("serving_default", "serve"):
            for k, y in model.signatures[name](**inputs).items():
                report[f"{n} {name} {k}"] = worst(y, known[f"output {k}"])
        floats = {k: x for k, x in inputs.items() if x.dtype.is_floating}
        with tf.GradientTape() as tape:
            tape.watch(floats)
            results = model.serve(*inputs.values()).values()
            total = tf.add_n([tf.reduce_sum(y * y) for y in results])
        sources = {**model.parameters, **floats}
        for k, g in tape.gradient(total, sources).items():
            report[f"{n} gradient {k}"] = worst(tf.convert_to_tensor(g), known[f"gradient {k}"])
        if "value_and_gradients" in model.signatures:
            out = model.signatures["value_and_gradients"](**inputs)
            report[f"{n} loss"] = worst(out.pop("loss"), known["loss"])
            for k, g in out.items():
                report[f"{n} {k}"] = worst(g, known[f"slope {k.removeprefix('gradient_')}"])
            kept = {k: v.numpy() for k, v in model.parameters.items()}
            for k, v in model.parameters.items():
                v.assign_sub(RATE * out[f"gradient_{k}"])
            after = model(*inputs.values())["output"]
            report[f"{n} after a step"] = worst(after, known["after a step"])
            for k, v in model.parameters.items():
                v.assign(kept[k])
    report["signatures"] = sorted(model.signatures)
    print(json.dumps({folder.name: report}))

if not COMMAND:
    sys.exit()
# What the command prints, which ends the process.
from tensorflow.python.tools import saved_model_cli
shown = next(folder.parent.glob("mlp_loss-*/model"))
sys.argv = ["saved_model_cli", "show", "--all", "--dir", str(shown)]
saved_model_cli.main()
"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory, thorough):
    """What a process without tapegraph finds in every exported model."""
    root = tmp_path_factory.mktemp("exported")
    chosen = [row.values for row in EXPORTED if thorough or not row.marks]
    for model, dtype in chosen:
        folder = root / f"{model.__name__}-{dtype}"
        folder.mkdir()
        exported(folder, model, dtype)
    told = json.dumps([PARITY_TOLERANCE, SIZES, RATE, thorough])
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(root), told],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=300,
        env={"TF_CPP_MIN_LOG_LEVEL": "3", "PATH": "", "HOME": str(root)},
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    found = {}
    for line in lines[: len(chosen)]:
        found |= json.loads(line)
    return found, "\n".join(lines[len(chosen) :]), root


@pytest.mark.parametrize(("model", "dtype"), EXPORTED)
def test_the_loaded_model_gives_the_eager_numbers_and_gradients(model, dtype, reports):
    report = reports[0][f"{model.__name__}-{dtype}"]
    loss = model in LOSSES
    names = ["serve", "serving_default", *["value_and_gradients"] * loss]
    assert report.pop("signatures") == names
    assert {k: x for k, x in report.items() if not (isinstance(x, float) and x <= 1)} == {}


@pytest.mark.thorough
def test_the_command_shows_signatures_with_the_names_of_the_function(reports):
    shown = reports[1]
    for name in ("serving_default", "serve", "value_and_gradients"):
        assert f"signature_def['{name}']" in shown
    for name in ("inputs['x']", "inputs['y']", "outputs['output']", "outputs['loss']"):
        assert name in shown
    for name in ("gradient_W", "gradient_b", "gradient_V"):
        assert f"outputs['{name}']" in shown
    assert "shape: (-1, 4)" in shown


@pytest.mark.thorough
def test_litert_converts_what_was_exported(tmp_path):
    lite = pytest.importorskip("tensorflow.lite.python.lite", reason="needs LiteRT's converter")
    _, f, batch = conv_net(np.random.default_rng(0), "float32")
    tg.export(f, tmp_path, *batch(3).values())
    converter = lite.TFLiteConverterV2.from_saved_model(
        str(tmp_path), signature_keys=["serving_default"]
    )
    model = converter.convert()
    with warnings.catch_warnings():  # later versions tell of the package that follows it
        warnings.filterwarnings("ignore", "(?s).*ai_edge_litert", UserWarning)
        interpreter = lite.Interpreter(model_content=model)
    given = batch(6)
    found = interpreter.get_signature_runner("serving_default")(**given)["output"]
    np.testing.assert_allclose(found, f(*given.values()).detach().numpy(), rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------ what is in the model


def loaded(f, folder, *examples, **options):
    tg.export(f, folder, *examples, **options)
    return tf.saved_model.load(str(folder))


X = np.linspace(-1.0, 1.0, 10).reshape(5, 2)
W = tg.param(np.ones((2, 2)))


def test_parameters_given_are_variables_and_others_constants(tmp_path):
    w, b = tg.param([1.0, 2.0], name="w"), tg.param(3.0, name="b")
    b.requires_grad_(False)
    model = loaded(lambda x: x @ w + b, tmp_path, X, params={"layer": {"w": w}, "frozen": b})
    assert list(model.parameters) == ["layer.w"]
    np.testing.assert_allclose(model(X)["output"], X @ [1.0, 2.0] + 3.0)
    model.parameters["layer.w"].assign([0.0, 0.0])
    np.testing.assert_allclose(model(X)["output"], np.full(5, 3.0))


@pytest.mark.thorough
def test_names_with_dots_and_slashes_are_kept(tmp_path):
    w, b = tg.param([1.0, 2.0], name="dense/kernel:0"), tg.param(3.0)
    model = loaded(lambda x: tg.sum(x @ w + b), tmp_path, X, params={"a": {"w": w}, "dense/b": b})
    assert list(model.parameters) == ["a.w", "dense/b"]
    found = model.signatures["value_and_gradients"](x=tf.constant(X))
    assert sorted(found) == ["gradient_a.w", "gradient_dense/b", "loss"]


@pytest.mark.thorough
def test_a_name_of_its_own_with_a_slash_is_kept(tmp_path):
    w = tg.param([1.0, 2.0], name="dense/kernel:0")
    model = loaded(lambda x: tg.sum(x @ w), tmp_path / "own", X)
    assert list(model.parameters) == ["dense/kernel:0"]


def test_parameters_may_have_any_name_or_none_and_need_not_be_read(tmp_path):
    names = ["θ", "_w", "^x", "<...>", "-", "__call__", "日本", None, "unused"]
    params = [tg.param(float(i), name=name) for i, name in enumerate(names)]
    model = loaded(lambda x: tg.sum(x) * sum(params[:-1]), tmp_path, X, params=params)
    names[7] = "parameter_7"
    assert list(model.parameters) == names
    assert [v.numpy() for v in model.parameters.values()] == [*range(9)]
    found = model.signatures["value_and_gradients"](x=tf.constant(X + 1.0))
    assert sorted(found) == sorted(["loss", *(f"gradient_{name}" for name in names)])
    total = (X + 1.0).sum()
    assert found["loss"].numpy() == pytest.approx(28.0 * total)
    slopes = [found[f"gradient_{name}"].numpy() for name in names]
    assert slopes == pytest.approx([total] * 8 + [0.0])


def test_two_parameters_of_one_name_are_refused(tmp_path):
    a, b = tg.param(1.0, name="w"), tg.param(2.0, name="w")
    with pytest.raises(ValueError, match=r"export: received two parameters named 'w'.*name="):
        tg.export(lambda x: x * a + b, tmp_path, X)


@pytest.mark.parametrize("wrong", [3.0, np.ones(2), tg.tensor([1.0]), tg.Value(1.0), W * 2.0])
def test_params_that_are_none_are_refused(wrong, tmp_path):
    with pytest.raises(
        TypeError, match=r"(?s)export: received .*; expected .*(tg.param|parameters)"
    ):
        tg.export(lambda x: x, tmp_path, X, params=[wrong])


def test_the_parameters_of_an_object_are_named_by_their_paths(tmp_path):
    class Model:
        def __init__(self):
            self.layers = [{"w": tg.param([1.0, 2.0])}]
            self.name = "model"

        def __call__(self, x):
            return x @ self.layers[0]["w"]

    model = Model()
    found = loaded(model, tmp_path, X, params=model)
    assert list(found.parameters) == ["layers.0.w"]
    np.testing.assert_allclose(found(X)["output"], X @ [1.0, 2.0])


def test_outputs_are_named_by_keys_or_counted(tmp_path):
    model = loaded(lambda x: (x, x * 2.0), tmp_path, X)
    assert sorted(model.serve(X)) == ["output_0", "output_1"]
    model = loaded(lambda x: {"a": x, "b": x * 2.0}, tmp_path / "dict", X)
    np.testing.assert_array_equal(model.serve(x=X)["b"], X * 2.0)


@pytest.mark.parametrize("wrong", [lambda x: 3.0, lambda x: {"a": [x]}, lambda x: {1: x}])
def test_other_results_are_refused(wrong, tmp_path):
    with pytest.raises(TypeError, match=r"export: received .*; expected .*tensors"):
        tg.export(wrong, tmp_path, X)


def test_without_a_batch_every_length_stays(tmp_path):
    table = tg.param(np.eye(2), name="table")
    model = loaded(lambda x: x @ table / len(x), tmp_path, X, batch=False)
    (spec,) = model.signatures["serving_default"].structured_input_signature[1].values()
    assert spec.shape == (5, 2)
    np.testing.assert_allclose(model(X)["output"], X / 5)


def test_only_arguments_as_long_as_the_first_are_batches(tmp_path):
    model = loaded(lambda x, m: x @ m, tmp_path, X, np.eye(2))
    specs = model.signatures["serving_default"].structured_input_signature[1]
    assert [tuple(specs[k].shape) for k in ("x", "m")] == [(None, 2), (2, 2)]


def test_a_gradient_that_does_not_flow_here_does_not_flow_there(tmp_path):
    w = tg.param([1.0, 2.0], name="w")

    def loss(x):
        with tg.no_grad():
            target = x @ w
        return tg.sum((x @ w * 2.0 - target) ** 2)

    found = loaded(loss, tmp_path, X).signatures["value_and_gradients"](x=tf.constant(X))
    (slope,) = tg.gradients(loss(X), [w])
    np.testing.assert_allclose(found["gradient_w"], slope.numpy(), rtol=1e-9)


def test_zeros_absorb_infinities_in_value_and_gradients(tmp_path):
    w = tg.param([0.0, 2.0], name="w")

    def loss(x):
        return tg.mean(np.where(x * w > 0, np.log(x * w), 0.0))

    x = np.abs(X)
    with np.errstate(all="ignore"):
        model = loaded(loss, tmp_path, x)
        (slope,) = tg.gradients(loss(x), [w])
    found = model.signatures["value_and_gradients"](x=tf.constant(x))
    assert slope.numpy()[0] == 0.0 and slope.numpy()[1] > 0.0
    np.testing.assert_allclose(found["gradient_w"], slope.numpy(), rtol=1e-9)


def test_an_export_changes_nothing_here(tmp_path):
    w = tg.param([1.0, 2.0], name="w")
    tg.sum(w * w).backward()
    before, entries = w.grad.copy(), len(tg.tape())
    tg.export(lambda x: x @ w, tmp_path, X)
    np.testing.assert_array_equal(w.grad, before)
    assert len(tg.tape()) == entries and w.grad is not None


# ------------------------------------------------------------------ what is refused


LABELS = np.arange(5)


@pytest.mark.parametrize(
    ("f", "says"),
    [
        (
            lambda x: tg.sum(x @ W) / len(x),
            r"the number 4, then 5, then 7 .* read by div .*mean\(\)",
        ),
        (
            lambda x: x @ W * np.arange(len(x))[:, None],
            r"an array of shape \(4, 1\) .* read by mul",
        ),
        (lambda x: sum(row @ W for row in x), r"operation.* for another batch"),
        (lambda x: tg.reshape(x @ W, (5, 1, 2)), r"fails for a batch of 4: reshape: .*-1"),
        (lambda x: (x @ W)[: len(x) // 2], r"read by getitem"),
        (lambda x: x @ W if len(x) > 4 else x, r"operation.* for another batch"),
        (lambda x: x @ W + tg.random.normal(size=(2,)), r"reads other numbers .* read by add"),
        (lambda x: W.assign((W * 2.0).detach()) or x @ W, r"changes tensors or gradients"),
    ],
)
def test_what_is_baked_in_is_refused_with_its_line(f, says, tmp_path):
    with pytest.raises(ValueError, match=rf"(?s)^export: received .*{says}.*") as caught:
        tg.export(f, tmp_path, X)
    line = f.__code__.co_firstlineno
    assert re.search(rf"{Path(__file__).name}:{line}[;)]", str(caught.value)) or "changes" in says
    np.testing.assert_array_equal(W.detach().numpy(), np.ones((2, 2)))


def test_what_is_another_number_in_every_call_is_refused(tmp_path):
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"with other numbers in another call.* read by mul"):
        tg.export(lambda x: x * rng.normal(size=2), tmp_path, X, batch=False)


def test_a_function_that_always_fails_raises_its_own_error(tmp_path):
    with pytest.raises(ValueError, match=r"^matmul: received shapes \(5, 2\) and \(3, 3\)"):
        tg.export(lambda x: x @ np.ones((3, 3)), tmp_path, X)


@pytest.mark.parametrize("examples", [(np.ones(()),), (np.ones((0, 2)),)])
def test_examples_without_a_batch_are_refused(examples, tmp_path):
    with pytest.raises(ValueError, match="expected a batch of one or more.*batch=False"):
        tg.export(lambda x: x, tmp_path, *examples)


def named(*names):
    """A function whose arguments have these names."""
    return eval(f"lambda {', '.join(names)}: {' + '.join(names)}")


@pytest.mark.parametrize("names", [["θ"], ["_x"], ["self"], ["x", "X"]])
def test_names_of_arguments_that_no_signature_takes_are_refused(names, tmp_path):
    message = r"^export: received .*named .*; expected .*tg\.export\(lambda x: f\(x\), path, x\)"
    with pytest.raises(ValueError, match=message):
        tg.export(named(*names), tmp_path / "model", *[X] * len(names))
    assert not (tmp_path / "model").exists()
    loaded(lambda *args: named(*names)(*args), tmp_path, *[X] * len(names))


def test_a_path_that_no_folder_can_have_is_refused(tmp_path):
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(OSError, match=r"export: received '.*file' .*; expected a folder"):
        tg.export(lambda x: x @ W, path, X)
    assert path.read_text() == "mine"


@pytest.mark.thorough
def test_many_exports_and_functions_are_no_retracing(tmp_path, caplog):
    for i in range(6):
        scale = tg.param(float(i), name="scale")
        # Each function has code of its own, as those that a program writes down have.
        f = eval(compile("lambda x, by=2.0: x * by * scale", f"{i}.py", "eval"), {"scale": scale})
        model = loaded(f, tmp_path / str(i), X)
        np.testing.assert_allclose(model(X)["output"], X * 2.0 * i)
        np.testing.assert_allclose(tg.function(f)(X), X * 2.0 * i)
        np.testing.assert_allclose(tg.function(f)(x=tf.constant(X)), X * 2.0 * i)
    assert "retracing" not in caplog.text


def test_no_examples_are_refused(tmp_path):
    with pytest.raises(TypeError, match="export: received no examples"):
        tg.export(lambda: W, tmp_path)


@pytest.mark.parametrize("arguments", [(abs, X, "saved"), ("saved", abs, X), (3, "saved", X)])
def test_arguments_in_another_order_are_refused(arguments):
    with pytest.raises(TypeError, match=r"^export: received .* Write tg\.export\(f, path, x\)"):
        tg.export(*arguments)


@pytest.fixture
def operations(monkeypatch):
    from tapegraph.recording.op import DEFINED
    from tapegraph.tensors import defop

    monkeypatch.setattr(defop, "_FORWARDS", {})
    before = dict(DEFINED)
    yield
    DEFINED.clear()
    DEFINED.update(before)


def doubled(lowering):
    return tg.defop(
        lambda x: x * 2.0, vjp=lambda g, y, x: g * 2.0, lowering=lowering, name="doubled"
    )


def test_an_operation_of_the_users_is_exported_by_its_lowering(tmp_path, operations):
    double = doubled(lambda x: x * 2.0)
    model = loaded(lambda x: tg.sum(double(x @ W)), tmp_path, X)
    assert model(X)["output"].numpy() == pytest.approx((X @ np.ones((2, 2)) * 2.0).sum())


def test_an_operation_without_a_lowering_is_refused(tmp_path, operations):
    double = doubled(None)
    with pytest.raises(tg.lowering.NotLowered, match=r"doubled has no lowering.*lowering="):
        tg.export(lambda x: double(x @ W), tmp_path, X)


def test_a_lowering_that_gives_other_numbers_is_found_out(tmp_path, operations):
    double = doubled(lambda x: x * 3.0)
    with pytest.raises(
        RuntimeError,
        match="TensorFlow's numbers differ from the function's by .*",
    ):
        tg.export(lambda x: double(x @ W), tmp_path, X)
    assert not (tmp_path / "saved_model.pb").exists()


def test_float64_zeros_beside_float32_numbers_are_no_difference(tmp_path):
    rng = np.random.default_rng(1)
    w = tg.param(rng.normal(size=(8, 8)).astype(np.float32))
    x = rng.normal(size=(5, 8)).astype(np.float32)
    tg.export(lambda x: np.tanh(x @ w) + np.zeros((len(x), 8)), tmp_path, x)
    assert (tmp_path / "saved_model.pb").exists()


@pytest.mark.parametrize("name", ["model.keras", "model.H5", "model.tflite"])
def test_a_suffix_of_another_format_is_an_error(name, tmp_path):
    with pytest.raises(ValueError, match=r"export: received the path .*model.*ends in \.onnx"):
        tg.export(lambda x: 2.0 * x, tmp_path / name, np.ones(3))
    assert list(tmp_path.iterdir()) == []
