"""What the tape is lowered to: the nodes of the table, checked, and nothing else changed."""

from __future__ import annotations

import importlib.util
import re

import numpy as np
import pytest
from contract import OPERATIONS

import tapegraph as tg
from tapegraph.lowering import GAPS, LOWERINGS, NotLowered, Unavailable, cache_info, lower, runtime
from tapegraph.lowering.rows import Row
from tapegraph.recording.op import OPS, PART
from tests.cases import OF_COMPLEX

pytestmark = pytest.mark.versions

needs_tensorflow = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="needs TensorFlow"
)

MASK = np.array([[1, 0, 1], [0, 0, 1], [1, 1, 0]])
CLASSES = np.array([0, 2, 1])
STACK = np.ones((2, 3, 3))
PARAM = CONSTANT = ["Placeholder"]
SCALAR = ["Const"]

# What TensorFlow wraps nodes in that come with a gradient of their own.
OWN_GRADIENT = ["Identity", "IdentityN"]
ROW_LOSSES = ["Max", "Sub", "Exp", "Sum", "GatherV2", "Log", "Sub", "Squeeze"]
# Operation: (call on a 3x3 parameter, the nodes of each entry after the parameter's).
UNARY = {
    "neg": ["Neg"],
    "sin": ["Sin"],
    "cos": ["Cos"],
    "tan": ["Tan", *OWN_GRADIENT],
    "exp": ["Exp"],
    "log": ["Log"],
    "sqrt": ["Sqrt"],
    "tanh": ["Tanh"],
    "sigmoid": ["Sigmoid"],
    "relu": ["Relu"],
    "abs": ["Abs"],
    "gelu": ["Mul", "Mul", "AddV2", "Mul", "Tanh", "AddV2", "Mul", "Mul", *OWN_GRADIENT],
    "silu": ["Sigmoid", "Mul"],
    "sum": ["Sum"],
    "mean": ["Mean"],
    "softmax": ["Softmax"],
    "transpose": ["Transpose"],
    "log1p": ["Log1p"],
    "expm1": ["Mul", "Tanh", "Exp", "AddV2", "Mul", *OWN_GRADIENT],
    "exp2": [
        *("Floor", "Minimum", "Maximum", "AddV2", "Mul", "Cast", "Bitcast"),  # 2**floor(x)
        *("Sub", "Mul", "Exp", "Mul", *OWN_GRADIENT),
    ],
    "sinh": ["Tanh", "Abs", "Mul", "Exp", "Mul", "Mul", "RealDiv", "AddV2", "Mul", *OWN_GRADIENT],
    "cosh": ["Abs", "Mul", "Exp", "Mul", "Mul", "RealDiv", "AddV2", *OWN_GRADIENT],
    "arcsin": ["Sub", "AddV2", "Mul", "Sqrt", "RealDiv", "Atan", *OWN_GRADIENT],
    "arccos": ["Sub", "AddV2", "RealDiv", "Sqrt", "Atan", "Mul", *OWN_GRADIENT],
    "arctan": ["Atan"],
    "arcsinh": ["Asinh"],
    "arccosh": ["Acosh", *OWN_GRADIENT],
    "arctanh": ["Atanh"],
    "sign": ["Sign"],
    "floor": ["Floor"],
    "ceil": ["Ceil"],
    "rint": ["Rint"],
}
NODES = {name: (getattr(tg, name), [nodes]) for name, nodes in UNARY.items()} | {
    "add": (lambda x: x + x, [["AddV2"]]),
    "sub": (lambda x: x - x, [["Sub"]]),
    "mul": (lambda x: x * x, [["Mul"]]),
    "div": (lambda x: x / x, [["RealDiv"]]),
    "pow": (lambda x: x**x, [["Pow"]]),
    "add-scalar": (lambda x: 2.0 + x, [SCALAR, ["AddV2"]]),
    "mul-array": (lambda x: x * np.ones(3), [CONSTANT, ["Mul"]]),
    "mul-integers": (lambda x: x * np.ones(3, dtype=int), [CONSTANT, ["Cast", "Mul"]]),
    "arctan2": (lambda x: tg.arctan2(x, x), [["Atan2", *OWN_GRADIENT]]),
    "matmul": (lambda x: x @ x, [["MatMul"]]),
    "matmul-vector": (lambda x: x @ np.ones(3), [CONSTANT, ["Reshape", "MatMul", "Reshape"]]),
    "batch_matmul": (lambda x: tg.batch_matmul(x, STACK), [CONSTANT, ["BatchMatMulV2"]]),
    "transpose-axes": (lambda x: tg.transpose(x, axes=(1, 0)), [["Transpose"]]),
    "sum-axis": (lambda x: tg.sum(x, axis=(0, 1), keepdims=True), [["Sum"]]),
    "softmax-axis": (
        lambda x: tg.softmax(x, axis=0),
        [["Max", "Sub", "Exp", "Sum", "RealDiv", *OWN_GRADIENT]],
    ),
    "reshape": (lambda x: tg.reshape(x, (9, -1)), [["Reshape"]]),
    "tensor_slice": (lambda x: tg.tensor_slice(x, (1, 0), (2, 2)), [CONSTANT, ["Slice"]]),
    "concat": (lambda x: tg.concat([x, x]), [["ConcatV2"]]),
    "gather": (lambda x: tg.gather(x, [0, -1]), [CONSTANT, ["GatherV2"]]),
    "where": (lambda x: tg.where(MASK, x, x), [CONSTANT, ["Cast", "SelectV2"]]),
    "getitem": (lambda x: x[1:, None, ::-1], [CONSTANT, CONSTANT, ["StridedSlice", *OWN_GRADIENT]]),
    "index": (lambda x: x[:, [0, 2]], [CONSTANT, ["GatherV2"]]),
    "index-pairs": (
        lambda x: x[[0, 1], [2, 2]],
        [CONSTANT, CONSTANT, ["Pack", "GatherNd", *OWN_GRADIENT]],
    ),
    "softmax_crossentropy": (
        lambda x: tg.softmax_crossentropy(x, CLASSES),
        [CONSTANT, ["ExpandDims", *ROW_LOSSES, *OWN_GRADIENT, "Mean"]],
    ),
    "softmax_crossentropy-rows": (
        lambda x: tg.softmax_crossentropy(x, MASK),
        [CONSTANT, ["LogSoftmax", "MulNoNan", "Sum", "Neg", "Mean"]],
    ),
    "mse_loss": (lambda x: tg.mse_loss(x, MASK), [CONSTANT, ["SquaredDifference", "Mean"]]),
}

IMAGE = np.ones((1, 1, 4, 4))
UNLOWERED = {
    "layer_norm": lambda x: tg.layer_norm(x, np.ones(4), np.zeros(4)),
    "conv2d": lambda x: tg.conv2d(x, np.ones((1, 1, 2, 2))),
    "max_pool2d": lambda x: tg.max_pool2d(x, 2),
    "avg_pool2d": lambda x: tg.avg_pool2d(x, 2),
    "convolve": lambda x: np.convolve(tg.reshape(x, -1), [1.0, 2.0]),
    "eig": lambda x: tg.abs(tg.eigvals(x)),
    "eigh": lambda x: tg.eigh(x).eigenvectors,
    "qr": lambda x: tg.qr(x).Q,
    "svd": lambda x: tg.svd(x).U,
    "erfcx": lambda x: tg.special.erfcx(x),
    "log_ndtr": lambda x: tg.special.log_ndtr(x),
}
NEEDS_SCIPY = {"erfcx", "log_ndtr"}


def matrix() -> tg.Tensor:
    return tg.param(np.arange(1.0, 10.0).reshape(3, 3), name="x")


# ------------------------------------------------------------------ the table


@needs_tensorflow
@pytest.mark.parametrize("name", NODES)
def test_nodes_are_those_of_the_table(name):
    call, nodes = NODES[name]
    with np.errstate(all="ignore"):  # arcsin(2), for one: only its nodes matter
        lowered = lower(call(matrix()))
    assert lowered.node_types == [PARAM, *nodes]


def test_every_operation_is_lowered_or_a_known_gap():
    ours = OPERATIONS - set(GAPS) - OF_COMPLEX
    assert ours <= {name.partition("-")[0] for name in NODES} <= set(LOWERINGS)
    assert set(UNLOWERED) == set(GAPS)
    assert set(LOWERINGS) | set(GAPS) == {*OPS, PART.name}
    assert not set(LOWERINGS) & set(GAPS)


@pytest.mark.parametrize("name", UNLOWERED)
def test_an_operation_without_lowering_is_named(name):
    if name in NEEDS_SCIPY:
        pytest.importorskip("scipy.special")
    y = UNLOWERED[name](tg.param(IMAGE) * 2.0)
    with pytest.raises(NotLowered, match=rf"^{name} "):
        lower(y)


# ------------------------------------------------------------------ what lower() gives


def network() -> tuple[tg.Tensor, tg.Tensor, tg.Tensor]:
    x = tg.tensor(np.array([[1.0, -2.0, 0.5]]))
    w = tg.param(np.linspace(-1.0, 1.0, 6).reshape(3, 2), name="w")
    b = tg.param(np.array([0.25, -0.5]), name="b")
    return w, b, tg.mean(tg.tanh(x @ w + b) ** 2)


@needs_tensorflow
def test_one_list_an_entry_in_tape_order():
    lowered = lower(network()[-1])
    names = [op.name for op in lowered.program.ops]
    by_entry = list(zip(names, lowered.node_types, strict=True))
    assert by_entry == [
        ("constant", ["Placeholder"]),
        ("param", ["Placeholder"]),
        ("param", ["Placeholder"]),
        ("matmul", ["MatMul"]),
        ("add", ["AddV2"]),
        ("tanh", ["Tanh"]),
        ("scalar", ["Const"]),
        ("pow", ["Pow"]),
        ("mean", ["Mean"]),
    ]


@needs_tensorflow
def test_graph_def_holds_the_nodes_and_one_placeholder_an_input():
    lowered = lower(network()[-1])
    kinds = [node.op for node in lowered.graph_def.node]
    assert {"MatMul", "AddV2", "Tanh", "Pow", "Mean", "TanhGrad"} <= set(kinds)
    assert kinds.count("Placeholder") == len(lowered.inputs) + 1  # the seed


@needs_tensorflow
def test_inputs_are_the_fed_leaves():
    w, b, y = network()
    inputs = lower(y).inputs
    assert [(i.slot, i.op, i.name, i.shape, i.dtype) for i in inputs] == [
        (0, "constant", None, (1, 3), "float64"),
        (1, "param", "w", (3, 2), "float64"),
        (2, "param", "b", (2,), "float64"),
    ]
    np.testing.assert_array_equal(inputs[1].value, w.data)
    np.testing.assert_array_equal(inputs[2].value, b.data)


@needs_tensorflow
def test_tf_function_computes_the_gradients():
    import tensorflow as tf

    w, b, y = network()
    lowered = lower(y)
    feeds = [tf.constant(i.value) for i in lowered.inputs]
    found = lowered.tf_function(*feeds, tf.constant(2.0, tf.float64))
    with tg.use_backend("native"):
        y.backward(2.0)
    for leaf, grad in zip((w, b), found, strict=True):
        np.testing.assert_allclose(grad.numpy(), leaf.grad, rtol=1e-12)


@needs_tensorflow
def test_write_makes_an_event_file_for_tensorboard(tmp_path):
    import tensorflow as tf
    from tensorflow.core.framework import graph_pb2
    from tensorflow.core.util import event_pb2

    lower(network()[-1]).write(str(tmp_path))
    (path,) = tmp_path.glob("events.out.tfevents.*")
    records = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    graphs = [event_pb2.Event.FromString(record).graph_def for record in records]
    nodes = [n.op for g in graphs for n in graph_pb2.GraphDef.FromString(g).node]
    assert "MatMul" in nodes


@needs_tensorflow
def test_lowering_changes_nothing():
    w, b, y = network()
    before, tape = cache_info(), str(tg.tape())
    lower(y)
    assert (w.grad, b.grad) == (None, None)
    assert (cache_info(), str(tg.tape()), tg.last_backward()) == (before, tape, None)


@pytest.mark.parametrize("y", [tg.tensor(1.0), 3.0, None], ids=["constant", "number", "none"])
def test_lower_refuses_what_was_not_recorded(y):
    with pytest.raises(RuntimeError, match="lower: received .* a recorded Tensor"):
        lower(y)


def test_lower_without_tensorflow_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(runtime, "_module", None)
    monkeypatch.setattr(runtime, "_reason", None)
    monkeypatch.setitem(__import__("sys").modules, "tensorflow", None)
    with pytest.raises(Unavailable, match=re.escape('pip install "tensorflow>=2.18"')):
        lower(matrix() * 2.0)


# ------------------------------------------------------------------ the check against the tape


def wrong_shape(out, x):
    return LOWERINGS["sum"].rule(out, x, axis=(0,), keepdims=False)


def wrong_dtype(out, x):
    return runtime.tensorflow().raw_ops.Cast(x=x, DstT="float32")


@needs_tensorflow
@pytest.mark.parametrize(
    ("rule", "received"), [(wrong_shape, r"float64 \(3,\)"), (wrong_dtype, r"float32 \(3, 3\)")]
)
def test_a_lowering_that_disagrees_with_the_tape_is_named(
    rule, received, monkeypatch, graph_engine
):
    monkeypatch.setitem(LOWERINGS, "sin", Row(rule))
    x = matrix()
    y = tg.sum(tg.sin(x))
    message = rf"the lowering of sin gives {received} where the tape has float64 \(3, 3\): sin "
    with pytest.raises(TypeError, match=message + r".*test_lowering\.py:\d+"):
        lower(y)
    with pytest.raises(RuntimeError, match=message):  # the engine is strict here
        y.backward()
    assert x.grad is None
    assert cache_info().size == 0


@needs_tensorflow
@pytest.mark.parametrize("kinds", ["fd", "df", "fD", "Dd", "ld"])
def test_operands_are_converted_where_numpy_does(kinds, graph_engine):
    """TensorFlow's nodes take operands of one dtype."""
    left, right = (np.array([[0.5, 1.25], [2.0, 3.5]], kind) + 1 for kind in kinds)

    def gradients(backend):
        x, y = tg.param(left), tg.param(right)
        with tg.use_backend(backend):
            z = x * y - y / (x + 1) + tg.concat([x, y])[1:3]
            tg.sum(tg.abs(z) ** 2 * np.array([[1.0, -2.0], [0.5, 3.0]])).backward()
        assert tg.last_backward().backend == backend, tg.last_backward().reason
        return x.grad, y.grad

    single = {"f", "F"} & {*kinds}
    for found, want in zip(gradients("tensorflow"), gradients("native"), strict=True):
        assert found.dtype == want.dtype
        np.testing.assert_allclose(found, want, rtol=1e-5 if single else 1e-12)
