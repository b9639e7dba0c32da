"""`step.write`: the graph that TensorBoard shows, under the names of the parameters."""

from __future__ import annotations

import numpy as np
import pytest
from optional import optional

import tapegraph as tg

tf = optional("tensorflow")


def new_step(*names):
    params = [tg.param(np.ones((3, 3)), name=name) for name in names]
    optimizer = tg.SGD(params, 0.1, momentum=0.9)

    @tg.compile
    def step(x):
        loss = tg.sum(np.tanh(sum((x @ p for p in params), x)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step, params


def graph_in(folder):
    (file,) = folder.glob("events.*")
    events = [*tf.compat.v1.train.summary_iterator(str(file))]
    (written,) = [event.graph_def for event in events if event.HasField("graph_def")]
    return tf.compat.v1.GraphDef.FromString(written)


@pytest.mark.parametrize("engine", ["native", "tensorflow"])
def test_parameters_have_their_names_and_scopes(engine, tmp_path):
    step, params = new_step("encoder/W", "encoder/V", "a head", None)
    with tg.use_backend(engine):
        for _ in range(3):
            step(np.ones((2, 3)))
        before = [p.detach().numpy().copy() for p in params]
        step.write(tmp_path)
    graph = graph_in(tmp_path)
    kinds = {node.name: node.op for node in graph.node}
    for name in ("encoder/W", "encoder/V", "a_head"):
        assert kinds[f"{name}/variable"] == "Placeholder"
        assert kinds[f"{name}/read"] == "ReadVariableOp"
    readers = [node.op for node in graph.node if "encoder/W/read" in node.input]
    assert readers.count("MatMul") == 1 and "input_0" in kinds
    # Every input is there: it is one graph still.
    with tf.Graph().as_default():
        tf.import_graph_def(graph, name="")
    for p, array in zip(params, before, strict=True):
        np.testing.assert_array_equal(p.detach().numpy(), array)


def test_one_name_twice_is_told_apart(tmp_path):
    step, _ = new_step("W", "W")
    for _ in range(3):
        step(np.ones((2, 3)))
    step.write(tmp_path)
    names = {node.name for node in graph_in(tmp_path).node}
    assert {"W/variable", "W/variable_1", "W/read", "W/read_1"} <= names


def test_a_step_that_was_not_called_has_no_graph(tmp_path):
    step, _ = new_step("W")
    with pytest.raises(RuntimeError, match="write: .* has no graph yet: .* and has had 0"):
        step.write(tmp_path)
    with tg.use_backend("native"):
        step(np.ones((2, 3)))
    with pytest.raises(RuntimeError, match="it needs two calls .*, and has had 1"):
        step.write(tmp_path)


def test_a_step_that_tensorflow_cannot_run_says_why(tmp_path):
    w = tg.param(np.eye(2))
    step = tg.compile(lambda x: tg.sum(np.linalg.eigh(x @ w)[1]))
    for _ in range(3):
        step(np.eye(2))
    with pytest.raises(RuntimeError, match=r"write: .* has no TensorFlow graph: .*eigh"):
        step.write(tmp_path)
