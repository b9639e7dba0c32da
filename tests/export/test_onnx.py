"""What goes to ONNX gives the eager numbers in onnxruntime, where tapegraph cannot be imported."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import free_programs
import numpy as np
import pytest
from exported_models import attention, conv_net, embedded, mlp
from free_programs import PROGRAMS
from optional import optional

import tapegraph as tg
from tapegraph.exporting.onnx import ROWS
from tapegraph.recording.op import OPS
from tests.cases import CASES, WITHOUT_GRADIENT
from tests.quick import a_few_each, check_each, each_operation, thinned

onnx = optional("onnx", "needs the extra onnx")
runtime = optional("onnxruntime", "needs onnxruntime")

RNG = np.random.default_rng(0)
X = np.linspace(-1.0, 1.0, 10, dtype=np.float32).reshape(5, 2)
W = tg.param(np.float32([[1.0, -1.0], [0.5, 2.0]]), name="W")


class Loaded:
    """The model of a function, as onnxruntime runs it, by position."""

    def __init__(self, f, folder, *examples, **how):
        path = folder / "model.onnx"
        tg.export(f, path, *examples, **how)
        self.model = onnx.load(path)
        self.initializers = {
            x.name: onnx.numpy_helper.to_array(x) for x in self.model.graph.initializer
        }
        # The nodes as they are: 1.23 and before fuse those of float64 into some that they lack.
        options = runtime.SessionOptions()
        options.log_severity_level = 3  # warnings are of what it leaves out
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        self.session = runtime.InferenceSession(path, options, ["CPUExecutionProvider"])
        self.inputs = {x.name: x.shape for x in self.session.get_inputs()}
        self.outputs = {x.name: x.shape for x in self.session.get_outputs()}

    def __call__(self, *arrays):
        found = self.session.run(None, dict(zip(self.inputs, arrays, strict=True)))
        return dict(zip(self.outputs, found, strict=True))


# ------------------------------------------------------------------ every operation

# onnxruntime's MaxPool of float32 begins at the lowest number: a window of -inf alone gives that.
KNOWN = {"max_pool2d-ties-pad-as-large"}
IN_ONNX = [case for case in (*CASES, *WITHOUT_GRADIENT) if case.op in ROWS and case.id not in KNOWN]
FLOAT64 = ("matmul", "tanh", "softmax", "layer_norm", "gelu", "index", "getitem", "max", "argsort")


def compare(case, folder, dtype, **tolerance):
    arrays, f = case.arrays(dtype), case.function(dtype)
    with np.errstate(all="ignore"):
        wanted = f(*map(tg.tensor, arrays))
        if not isinstance(wanted, tg.Tensor):  # of booleans, which are arrays
            return
        try:
            (found,) = Loaded(f, folder, *arrays, batch=False)(*arrays).values()
        except NotImplementedError as error:  # for what is computed beside it
            assert "no nodes in ONNX for it" in str(error) and f"received {case.op} " not in str(
                error
            )
            return
    wanted = wanted.detach().numpy()
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(found, wanted, **tolerance)


@each_operation(IN_ONNX)
@pytest.mark.one_in(6)
def test_an_operation_gives_the_eager_numbers(op, tmp_path, thorough):
    cases = IN_ONNX if thorough else a_few_each(IN_ONNX)
    check_each(op, cases, lambda case: compare(case, tmp_path, np.float32, rtol=1e-5, atol=1e-6))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("op", FLOAT64)
def test_float64_stays_float64(op, tmp_path):
    cases = a_few_each(IN_ONNX)
    check_each(op, cases, lambda case: compare(case, tmp_path, np.float64, rtol=1e-12, atol=1e-14))


def test_a_pooled_window_of_infinities_is_the_lowest_number(tmp_path):
    (case,) = (case for case in CASES if case.id in KNOWN)
    with pytest.raises(AssertionError, match=r"-3\.402823e\+38"):  # else it is KNOWN no more
        compare(case, tmp_path, np.float32)


# By the type of what they give for integers: wrapped around, compared, rounded, or floats.
WHOLE = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "square": lambda x, y: x**2,
    "floor_divide": lambda x, y: x // y,
    "mod": lambda x, y: x % y,
    "maximum": lambda x, y: np.maximum(x, y),
    "where": lambda x, y: np.where(x > y, x, y),
    "relu": lambda x, y: tg.relu(x),
    "sum": lambda x, y: np.sum(x, axis=1),
    "prod": lambda x, y: np.prod(x, axis=1),
    "max": lambda x, y: np.max(x, axis=1),
    "cumsum": lambda x, y: np.cumsum(x, axis=1),
    "sort": lambda x, y: np.sort(x, axis=1),
    "matmul": lambda x, y: x @ y.T,
    "einsum": lambda x, y: np.einsum("ij,kj->ik", x, y),
    "floor": lambda x, y: np.floor(x),
    "trunc": lambda x, y: np.trunc(x),
    "round": lambda x, y: np.round(x),
    "tril": lambda x, y: np.tril(x),
    "mean": lambda x, y: np.mean(x, axis=1),
    "sin": lambda x, y: np.sin(x),
    "softmax": lambda x, y: tg.softmax(x),
}
OTHER_INTEGERS = ("bool", "int8", "int16", "uint8", "uint16", "uint32", "uint64")
OF_EACH_KIND = {"add", "cumsum", "matmul", "sort", "trunc", "sin"}
THROUGH_FLOATS = {"square", "sum", "prod"}
NOT_OF_UINT64 = {"square", "where", "relu", "max", "sort"}
if np.trunc(np.uint64(1)).dtype == np.uint64:  # since NumPy 2.1
    NOT_OF_UINT64.add("trunc")


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "name",
    [n if n in OF_EACH_KIND else pytest.param(n, marks=pytest.mark.thorough) for n in WHOLE],
)
def test_integers_and_booleans_give_the_eager_numbers(name, tmp_path):
    f = WHOLE[name]
    for dtype in ("int32", "int64", *OTHER_INTEGERS):
        limits = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        x = np.array([[limits[1], 3, limits[0]], [100, 7, limits[1]]], np.dtype(dtype))
        y = np.array([[1, 2, 4], [3, 1, 2]], dtype)
        if name in THROUGH_FLOATS and np.dtype(dtype).itemsize > 2:
            x = np.clip(x, 0, 50_000).astype(dtype)  # whose squares are whole in float64
        if name in NOT_OF_UINT64 and dtype == "uint64":
            with pytest.raises(NotImplementedError, match=rf"{Path(__file__).name}:\d+.*uint64"):
                tg.export(f, tmp_path / "model.onnx", x, y)
            continue
        with np.errstate(all="ignore"):
            wanted = f(tg.tensor(x), tg.tensor(y)).numpy()
            (found,) = Loaded(f, tmp_path, x, y, batch=False)(x, y).values()
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6, err_msg=dtype)


@pytest.mark.parametrize("f", [np.max, np.min, np.argmax, np.argmin])
def test_a_nan_is_the_extreme_and_its_place(f, tmp_path):
    x = np.float32([[1.0, np.nan, 3.0], [np.nan, -np.inf, np.nan], [3.0, 2.0, 3.0]])
    (found,) = Loaded(lambda x: f(x, axis=1), tmp_path, x, batch=False)(x).values()
    np.testing.assert_array_equal(found, f(x, axis=1))


def test_the_page_names_every_operation_without_nodes():
    page = (Path(__file__).parents[2] / "docs" / "export.md").read_text()
    (named,) = re.findall(r"\*\*Without nodes in ONNX\*\*(.*?)\n- ", page, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", named)) == OPS.keys() - ROWS.keys()


# ------------------------------------------------------------------ any size of batch

# Programs of operations without nodes.
WITHOUT = {"cumprod", "crossentropy", "mse", "matrices", "outputs", "solve", "by-slopes"}
SIZES = (1, 2, 9)  # of none of which a function is recorded


@pytest.mark.parametrize("name", thinned([name for name in PROGRAMS if name not in WITHOUT], 2))
def test_a_program_of_any_batch_gives_the_eager_numbers(name, tmp_path, monkeypatch):
    weights = tg.param(RNG.normal(size=(4, 3)).astype(np.float32), name="W")
    monkeypatch.setattr(free_programs, "W", weights)
    monkeypatch.setattr(free_programs, "EYE", np.eye(3, dtype=np.float32))
    x, y = RNG.normal(size=(9, 4)).astype(np.float32), RNG.integers(0, 3, 9)
    f = PROGRAMS[name]
    model = Loaded(f, tmp_path, x, y)
    for n in SIZES:
        found, wanted = model(x[:n], y[:n])["output"], f(x[:n], y[:n]).detach().numpy()
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", sorted(WITHOUT))
def test_a_program_without_nodes_is_refused_with_its_line(name, tmp_path):
    x, y = RNG.normal(size=(5, 4)), RNG.integers(0, 3, 5)
    with pytest.raises(NotImplementedError, match=r"recorded at .*free_programs\.py:\d+: no nodes"):
        tg.export(PROGRAMS[name], tmp_path / "model.onnx", x, y)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("f", "fewest"),
    [
        (lambda x: (x @ W)[:3], 3),
        (lambda x: (x @ x.T)[:4], 4),
        (lambda x: (x @ x.T)[3], 4),
        (lambda x: tg.tensor_slice(x @ W, (1, 0), (2, 2)), 3),
        (lambda x: x[:-3] @ W, 2),
        (lambda x: np.roll(x @ W, 3, axis=0), 0),
    ],
)
def test_rows_of_a_batch_that_has_fewer_are_an_error_or_none(f, fewest, tmp_path):
    model = Loaded(f, tmp_path, X)
    for n in (1, 2, 3, 5):
        if n < fewest:
            with pytest.raises(Exception, match="Non-zero status code"):
                model(X[:n])
        else:
            wanted = f(tg.tensor(X[:n])).numpy()
            np.testing.assert_allclose(model(X[:n])["output"], wanted, rtol=1e-5, atol=1e-6)


def test_places_beyond_a_table_are_an_error(tmp_path):
    table = tg.param(np.eye(3, dtype=np.float32), name="table")
    model = Loaded(lambda places: table[places] + tg.gather(table, places), tmp_path, np.arange(3))
    np.testing.assert_array_equal(model([2, -1])["output"], 2 * np.eye(3)[[2, 2]])
    for wrong in (3, -4):
        with pytest.raises(Exception, match="out of data bounds"):
            model(np.array([wrong]))


# ------------------------------------------------------------------ where tapegraph is not

CHILD = """
import pathlib, sys
sys.modules["tapegraph"] = None  # importing it is an error
import numpy as np
import onnxruntime

for folder in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    known = np.load(folder / "expected.npz")
    for n in (1, 2, 9):
        given = {x.name: known[f"{n} input {x.name}"] for x in session.get_inputs()}
        names = [y.name for y in session.get_outputs()]
        for name, found in zip(names, session.run(names, given), strict=True):
            wanted = known[f"{n} output {name}"]
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
            print(folder.name, n, name, found.dtype, found.shape == wanted.shape)
"""


def test_models_run_in_a_process_without_tapegraph(tmp_path):
    expected = []
    for model in (attention, conv_net, embedded, mlp):  # as folders are sorted
        folder = tmp_path / model.__name__
        folder.mkdir()
        _, f, batch = model(np.random.default_rng(1), "float32")
        tg.export(f, folder / "model.onnx", *batch(5).values())
        arrays = {}
        for n in (1, 2, 9):
            given = batch(n)
            found = f(*given.values())
            outputs = found if isinstance(found, dict) else {"output": found}
            arrays |= {f"{n} input {k}": x for k, x in given.items()}
            arrays |= {f"{n} output {k}": y.detach().numpy() for k, y in outputs.items()}
            expected += [f"{model.__name__} {n} {k} float32 True" for k in outputs]
        np.savez(folder / "expected.npz", **arrays)
    command = [sys.executable, "-c", CHILD, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.stdout.splitlines() == expected, done.stderr


# ------------------------------------------------------------------ what is in the model


def test_inputs_outputs_and_parameters_have_their_names(tmp_path):
    b = tg.param(np.float32(3.0), name="b")
    unnamed = tg.param(np.ones(2, np.float32))

    def f(images, scale):
        logits = images @ W * unnamed + b
        return {"logits": logits * scale, "label": np.argmax(logits, axis=1)}

    model = Loaded(f, tmp_path, X, np.float32(2.0))
    assert model.inputs == {"images": ["batch", 2], "scale": []}
    assert model.outputs == {"logits": ["batch", 2], "label": ["batch"]}
    assert {"W", "b", "parameter_2"} <= set(model.initializers)
    np.testing.assert_array_equal(model.initializers["W"], W.detach().numpy())
    (opset,) = model.model.opset_import
    assert (opset.version, model.model.ir_version) == (18, 8)


def test_parameters_given_are_named_by_their_paths_and_others_are_constants(tmp_path):
    b = tg.param(np.float32(3.0), name="b")
    model = Loaded(lambda x: (x @ W + b, x), tmp_path, X, params={"layer": {"w": W}})
    assert "layer.w" in model.initializers and not {"W", "b"} & set(model.initializers)
    found = model(X)
    np.testing.assert_allclose(found["output_0"], X @ W.detach().numpy() + 3.0, rtol=1e-6)
    np.testing.assert_array_equal(found["output_1"], X)


def test_without_a_batch_every_length_stays(tmp_path):
    model = Loaded(lambda x: x @ W / len(x), tmp_path, X, batch=False)
    assert (model.inputs, model.outputs) == ({"x": [5, 2]}, {"output": [5, 2]})
    np.testing.assert_allclose(model(X)["output"], X @ W.detach().numpy() / 5, rtol=1e-6)


def test_bytes_become_floats(tmp_path):
    pixels = RNG.integers(0, 256, (4, 2), np.uint8)
    model = Loaded(lambda x: (x.astype(np.float32) / 255.0) @ W, tmp_path, pixels)
    wanted = pixels / 255.0 @ W.detach().numpy()
    np.testing.assert_allclose(model(pixels)["output"], wanted, rtol=1e-5)


def test_names_of_the_user_are_not_taken_by_nodes(tmp_path):
    params = [tg.param(np.float32(i), name=f"{op}_{i}") for i in range(9) for op in ("add", "mul")]
    model = Loaded(lambda constant_3: sum(params, constant_3 * params[-1]), tmp_path, X)
    assert {p.name for p in params} <= set(model.initializers)
    np.testing.assert_allclose(model(X)["output"], X * 8.0 + 72.0, rtol=1e-6)


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("f", "error", "says"),
    [
        (lambda x: tg.sum(x @ W) / len(x), ValueError, r"the number 4, then 5, then 7 .* by div"),
        (lambda x: x @ W + tg.random.normal(size=(2,)), ValueError, "reads other numbers"),
        (lambda x: tg.special.gammaln(x), NotImplementedError, "gammaln of shape .* no nodes"),
        (
            lambda x: np.arctan(x.astype(np.float64)),
            NotImplementedError,
            "arctan of shape .*: onnxruntime has Atan only for float32",
        ),
        (lambda x: tg.abs(x * 1j), NotImplementedError, "mul of shape .* none for its dtype"),
        (lambda x: {"": x @ W}, ValueError, "an output named ''; expected a name"),
        (lambda W: W @ globals()["W"], ValueError, "'W' as the name of two inputs, parameters"),
        (lambda x: {"x": x @ W}, ValueError, "'x' as the name of two .*the key of the output"),
    ],
)
def test_what_is_refused_leaves_the_file_as_it_was(f, error, says, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"before")
    with pytest.raises(error, match=rf"(?s)^export: received .*{says}") as caught:
        tg.export(f, path, X)
    if "'" not in says:
        line = f"{Path(__file__).name}:{f.__code__.co_firstlineno}"
        assert re.search(rf"{line}\D", str(caught.value))
    assert [(x.name, x.read_bytes()) for x in tmp_path.iterdir()] == [("model.onnx", b"before")]


def test_what_no_file_can_hold_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("tapegraph.exporting.onnx.LARGEST", 30)  # W and a table are of 32 bytes
    table = tg.param(np.ones((2, 2), np.float32), name="table")
    with pytest.raises(ValueError, match="^export: received parameters and constants of more than"):
        tg.export(lambda x: x @ W @ table, tmp_path / "model.onnx", X)
    assert list(tmp_path.iterdir()) == []


def test_an_ending_in_capitals_is_one(tmp_path):
    tg.export(lambda x: x @ W, tmp_path / "MODEL.ONNX", X)
    assert onnx.load(tmp_path / "MODEL.ONNX").graph.output[0].name == "output"


def test_the_package_that_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"^export: .* without onnx; .*onnx>=1\.17"):
        tg.export(lambda x: x @ W, tmp_path / "model.onnx", X)
    assert list(tmp_path.iterdir()) == []
