"""What is exported runs, differentiates and trains where tapegraph cannot be imported."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.testing import PARITY_TOLERANCE

tf = pytest.importorskip("tensorflow")

SIZES = (1, 2, 7)  # of none of which it was recorded
DTYPES = ("float64", "float32")


def weights(rng, dtype, **shapes):
    return {
        name: tg.param(rng.normal(0, 0.5, shape), dtype=dtype, name=name)
        for name, shape in shapes.items()
    }


# Models: a function of the generator and the dtype that returns the parameters, the function of
# arrays, and a function that makes a batch of some size.


def mlp(rng, dtype):
    p = weights(rng, dtype, W=(4, 8), b=(8,), V=(8, 3))

    def model(x):
        hidden = tg.gelu(x @ p["W"] + p["b"])
        return {"logits": hidden @ p["V"], "odds": tg.softmax(hidden @ p["V"])}

    return p, model, lambda n: {"x": rng.normal(size=(n, 4)).astype(dtype)}


def mlp_loss(rng, dtype):
    p = weights(rng, dtype, W=(4, 8), b=(8,), V=(8, 3))

    def loss(x, y):
        return tg.softmax_crossentropy(tg.tanh(x @ p["W"] + p["b"]) @ p["V"], y)

    return (
        p,
        loss,
        lambda n: {
            "x": rng.normal(size=(n, 4)).astype(dtype),
            "y": rng.integers(0, 3, n),
        },
    )


def conv_net(rng, dtype):
    p = weights(rng, dtype, K=(3, 1, 3, 3), c=(3, 1, 1), W=(12, 5))

    def model(images):
        maps = tg.max_pool2d(tg.relu(tg.conv2d(images, p["K"], pad=1) + p["c"]), 2)
        means = tg.avg_pool2d(maps, 2)
        return np.reshape(means, (len(means), -1)) @ p["W"]

    return p, model, lambda n: {"images": rng.normal(size=(n, 1, 8, 8)).astype(dtype)}


def attention(rng, dtype):
    p = weights(rng, dtype, Q=(8, 8), K=(8, 8), V=(8, 8), gain=(8,), shift=(8,), W=(8, 8))

    def heads(x):
        return np.transpose(np.reshape(x, (*x.shape[:2], 2, 4)), (0, 2, 1, 3))

    def block(x):
        normal = tg.layer_norm(x, p["gain"], p["shift"])
        q, k, v = (heads(normal @ p[name]) for name in "QKV")
        scores = q @ np.swapaxes(k, -1, -2) / 2.0
        scores = np.where(np.tril(np.ones((5, 5), bool)), scores, -1e9)
        mixed = np.transpose(tg.softmax(scores) @ v, (0, 2, 1, 3))
        return x + np.reshape(mixed, x.shape) @ p["W"]

    return p, block, lambda n: {"x": rng.normal(size=(n, 5, 8)).astype(dtype)}


def embedding(rng, dtype):
    p = weights(rng, dtype, table=(11, 6), W=(6, 11))

    def loss(tokens, following):
        logits = tg.gather(p["table"], tokens) @ p["W"]
        return tg.softmax_crossentropy(logits, following)

    return (
        p,
        loss,
        lambda n: {
            "tokens": rng.integers(0, 11, (n, 4)),
            "following": rng.integers(0, 11, (n, 4)),
        },
    )


def kinks(rng, dtype):
    """Operations whose gradient is not TensorFlow's own, at ties and at zero, along the batch."""
    p = weights(rng, dtype, w=(3,))

    def model(x):
        parts = [
            np.maximum(x, 0.0) * p["w"],
            np.abs(x).max(axis=0, keepdims=True) + x,
            x - x.mean(axis=0),
            np.exp2(x) * np.cosh(x) + np.expm1(x),
            np.cumsum(x, axis=0) + np.prod(x * 0.1 + 1.0, axis=1, keepdims=True),
            x[::-1] * p["w"] + x[-1],
            np.concatenate([x[1:], x[:1]]),
            np.linalg.norm(x, axis=1, keepdims=True) + np.hypot(x, p["w"]),
            np.broadcast_to(p["w"], x.shape) ** 2 + x[:, [2, 0, 0]],
            np.stack([x, x * 2.0]).sum(axis=0) + np.einsum("ij,kj->i", x, x)[:, None],
        ]
        return sum(parts[1:], parts[0])

    def batch(n):
        x = rng.integers(-2, 3, (n, 3)).astype(dtype)
        x[0] = 0.0
        return {"x": x}

    return p, model, batch


MODELS = (mlp, mlp_loss, conv_net, attention, embedding, kinks)
EXPORTED = [(model, dtype) for model in MODELS for dtype in DTYPES]
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

TOLERANCE, SIZES, RATE = json.loads(sys.argv[2])
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

# What the command prints, which ends the process.
from tensorflow.python.tools import saved_model_cli
sys.argv = ["saved_model_cli", "show", "--all", "--dir", str(folder.parent / "mlp_loss-float32" / "model")]
saved_model_cli.main()
"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """What a process without tapegraph finds in every exported model."""
    root = tmp_path_factory.mktemp("exported")
    for model, dtype in EXPORTED:
        folder = root / f"{model.__name__}-{dtype}"
        folder.mkdir()
        exported(folder, model, dtype)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(root), json.dumps([PARITY_TOLERANCE, SIZES, RATE])],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=300,
        env={"TF_CPP_MIN_LOG_LEVEL": "3", "PATH": "", "HOME": str(root)},
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    found = {}
    for line in lines[: len(EXPORTED)]:
        found |= json.loads(line)
    return found, "\n".join(lines[len(EXPORTED) :]), root


@pytest.mark.parametrize(("model", "dtype"), EXPORTED)
def test_the_loaded_model_gives_the_eager_numbers_and_gradients(model, dtype, reports):
    report = reports[0][f"{model.__name__}-{dtype}"]
    loss = model in LOSSES
    names = ["serve", "serving_default", *["value_and_gradients"] * loss]
    assert report.pop("signatures") == names
    assert {k: x for k, x in report.items() if not (isinstance(x, float) and x <= 1)} == {}
