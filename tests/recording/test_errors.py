"""Bad input: the type of the error, what its message names, and that nothing else changed."""

from __future__ import annotations

import copy
import functools
import linecache
import os
import re
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.exceptions import AxisError

import tapegraph as tg
from tapegraph.errors import BETWEEN, LIBRARY, ORIGINS, USER, user_line
from tapegraph.fallback import VJPS
from tests.quick import in_one

IMAGE = np.ones((1, 2, 4, 4))


class Scene:
    """A recorded graph with gradients in place, to be found as it was after a failed call."""

    def __init__(self):
        self.x = tg.param(np.arange(1.0, 7.0).reshape(2, 3), name="x")
        self.v = tg.param([1.0, 2.0, 3.0])
        self.y = tg.sum(self.x * self.v)
        self.y.backward()

    def state(self):
        return (
            [(e.op, e.inputs, e.shape, e.requires_grad) for e in tg.tape()],
            self.x.data.tobytes(),
            self.x.grad.tobytes(),
            self.v.grad.tobytes(),
        )

    def check_usable(self):
        tg.zero_grad()
        self.y.backward()
        np.testing.assert_array_equal(self.x.grad, [[1.0, 2.0, 3.0]] * 2)
        np.testing.assert_array_equal(self.v.grad, [5.0, 7.0, 9.0])


def failure(call, error, *arguments):
    """Return the message of a call that fails, with the error and its frames gone."""
    try:
        call(*arguments)
    except error as caught:
        assert type(caught) is error
        return str(caught)
    pytest.fail(f"{error.__name__} not raised")


# What is wrong: the call, the type of its error, and what the message names. The message also
# names the call's own line, so each case stays on one.
# fmt: off
# ruff: noqa: E501
CASES = {
    # shapes: the operation and both shapes
    "add": (lambda x, v: x + np.ones(2), ValueError, "add:", "(2, 3)", "(2,)"),
    "sub": (lambda x, v: np.ones(2) - x, ValueError, "sub:", "(2, 3)", "(2,)"),
    "mul": (lambda x, v: x * [1.0, 2.0], ValueError, "mul:", "(2, 3)", "(2,)"),
    "div": (lambda x, v: x / tg.tensor([[1.0], [1.0], [1.0]]), ValueError, "div:", "(2, 3)", "(3, 1)"),
    "pow": (lambda x, v: x ** np.ones((4, 1, 2)), ValueError, "pow:", "(2, 3)", "(4, 1, 2)"),
    "matmul": (lambda x, v: x @ x, ValueError, "matmul:", "(2, 3) and (2, 3)"),
    "matmul vector": (lambda x, v: x @ np.ones(2), ValueError, "matmul:", "(2, 3) and (2,)"),
    "matmul 0-d": (lambda x, v: x @ 2.0, ValueError, "matmul:", "(2, 3) and ()"),
    "rmatmul": (lambda x, v: np.ones((4, 4)) @ x, ValueError, "matmul:", "(4, 4) and (2, 3)"),
    "matmul stack": (lambda x, v: np.ones((2, 1, 2)) @ tg.param(np.ones((3, 2, 1))), ValueError, "matmul:", "(2, 1, 2)", "(3, 2, 1)"),
    "batch_matmul": (lambda x, v: tg.batch_matmul(np.ones((2, 2, 3)), np.ones((2, 2, 3))), ValueError, "batch_matmul:", "(2, 2, 3) and (2, 2, 3)"),
    "batch_matmul 2-D": (lambda x, v: tg.batch_matmul(x, x.T), ValueError, "batch_matmul:", "(2, 3) and (3, 2)"),
    "where": (lambda x, v: tg.where(np.ones(2), x, v), ValueError, "where:", "(2,)", "(2, 3)", "(3,)"),
    "concat": (lambda x, v: tg.concat([x, np.ones((2, 2))]), ValueError, "concat:", "(2, 3)", "(2, 2)"),
    "concat ndim": (lambda x, v: tg.concat([x, v]), ValueError, "concat:", "(2, 3)", "(3,)"),
    "concat 0-d": (lambda x, v: tg.concat([tg.param(1.0)]), ValueError, "concat:", "()"),
    "concat nothing": (lambda x, v: tg.concat([]), ValueError, "concat:", "at least one"),
    "reshape": (lambda x, v: tg.reshape(x, (4, 2)), ValueError, "reshape:", "(2, 3)", "(4, 2)"),
    "reshape -1": (lambda x, v: x.reshape(-1, 4), ValueError, "reshape:", "(2, 3)", "(-1, 4)"),
    "reshape two -1": (lambda x, v: x.reshape(-1, -1), ValueError, "reshape:", "(-1, -1)", "at most one -1"),
    "reshape negative": (lambda x, v: x.reshape(-2, -3), ValueError, "reshape:", "(-2, -3)"),
    "layer_norm gamma": (lambda x, v: tg.layer_norm(x, np.ones(2), v), ValueError, "layer_norm:", "(2, 3)", "gamma of shape (2,)"),
    "layer_norm beta": (lambda x, v: tg.layer_norm(v, v, x), ValueError, "layer_norm:", "(3,)", "beta of shape (2, 3)"),
    "layer_norm 0-d": (lambda x, v: tg.layer_norm(1.0, 1.0, 1.0), ValueError, "layer_norm:", "()"),
    "conv2d channels": (lambda x, v: tg.conv2d(IMAGE, np.ones((1, 3, 2, 2))), ValueError, "conv2d:", "(1, 2, 4, 4)", "(1, 3, 2, 2)"),
    "conv2d ndim": (lambda x, v: tg.conv2d(x, IMAGE), ValueError, "conv2d:", "(2, 3)", "(1, 2, 4, 4)"),
    "conv2d kernel": (lambda x, v: tg.conv2d(IMAGE, np.ones((1, 2, 5, 1))), ValueError, "conv2d:", "(5, 1)", "(1, 2, 4, 4)"),
    "conv2d dilated": (lambda x, v: tg.conv2d(IMAGE, np.ones((1, 2, 3, 3)), dilation=2), ValueError, "conv2d:", "(5, 5)", "(4, 4)"),
    "max_pool2d ndim": (lambda x, v: tg.max_pool2d(x, 2), ValueError, "max_pool2d:", "(2, 3)"),
    "max_pool2d window": (lambda x, v: tg.max_pool2d(IMAGE, 5), ValueError, "max_pool2d:", "(5, 5)", "(1, 2, 4, 4)"),
    "avg_pool2d ndim": (lambda x, v: tg.avg_pool2d(x, 2), ValueError, "avg_pool2d:", "(2, 3)"),
    "avg_pool2d window": (lambda x, v: tg.avg_pool2d(IMAGE, (1, 7)), ValueError, "avg_pool2d:", "(1, 7)", "(1, 2, 4, 4)"),
    "cross-entropy": (lambda x, v: tg.softmax_crossentropy(x, [0, 1, 1]), ValueError, "softmax_crossentropy:", "(2, 3)", "(3,)"),
    "cross-entropy 0-d": (lambda x, v: tg.softmax_crossentropy(1.0, 0), ValueError, "softmax_crossentropy:", "()"),
    "mse_loss": (lambda x, v: tg.mse_loss(x, v), ValueError, "mse_loss:", "(2, 3)", "(3,)"),
    "mse_loss column": (lambda x, v: tg.mse_loss(v[:, None], v), ValueError, "mse_loss:", "(3, 1)", "(3,)", "tg.mean"),
    "softmax 0-d": (lambda x, v: tg.softmax(1.0), ValueError, "softmax:", "0-d"),
    "assign": (lambda x, v: x.assign(np.ones(4)), ValueError, "assign:", "(4,)", "(2, 3)"),
    "set data": (lambda x, v: setattr(x, "data", np.ones(4)), ValueError, "assign:", "(4,)", "(2, 3)"),
    "set grad": (lambda x, v: setattr(x, "grad", np.ones(4)), ValueError, "grad:", "(4,)", "(2, 3)"),
    # indices: the index and the bound
    "gather": (lambda x, v: tg.gather(x, [0, 2]), IndexError, "gather:", "index 2", "axis 0", "[-2, 2)"),
    "gather negative": (lambda x, v: tg.gather(x, [[0], [-4]], axis=1), IndexError, "gather:", "index -4", "axis 1", "[-3, 3)"),
    "gather empty": (lambda x, v: tg.gather(np.zeros((0, 2)), 0), IndexError, "gather:", "index 0", "length 0"),
    "int index": (lambda x, v: x[2], IndexError, "getitem:", "index 2", "axis 0", "[-2, 2)"),
    "negative index": (lambda x, v: x[0, -4], IndexError, "getitem:", "index -4", "axis 1", "[-3, 3)"),
    "array index": (lambda x, v: x[[0, 5]], IndexError, "getitem:", "index 5", "axis 0", "[-2, 2)"),
    "array after slice": (lambda x, v: x[:, None, [0, 3]], IndexError, "getitem:", "index 3", "[-3, 3)"),
    "too many indices": (lambda x, v: x[0, 0, 0], IndexError, "getitem:", "3 axes", "(2, 3)"),
    "two ellipses": (lambda x, v: x[..., ...], IndexError, "getitem:", "2 '...'"),
    "mask shape": (lambda x, v: x[np.array([True, False, True])], IndexError, "getitem:", "(3,)", "(2, 3)"),
    "index arrays": (lambda x, v: x[[0, 1], [0, 1, 2]], IndexError, "getitem:", "(2,)", "(3,)"),
    "tensor_slice": (lambda x, v: tg.tensor_slice(x, (0, 2), (1, 2)), IndexError, "tensor_slice:", "(0, 2)", "(1, 2)", "(2, 3)"),
    "tensor_slice negative": (lambda x, v: tg.tensor_slice(x, (-1, 0), (1, 1)), IndexError, "tensor_slice:", "(-1, 0)", "(2, 3)"),
    "class": (lambda x, v: tg.softmax_crossentropy(x, [0, 3]), IndexError, "softmax_crossentropy:", "class 3", "[0, 3)"),
    "negative class": (lambda x, v: tg.softmax_crossentropy(x, [-1, 0]), IndexError, "softmax_crossentropy:", "class -1", "[0, 3)"),
    # what is no index, axis or size: the argument
    "float index": (lambda x, v: x[1.5], IndexError, "getitem:", "1.5"),
    "string index": (lambda x, v: x["a"], IndexError, "getitem:", "'a'"),
    "float indices": (lambda x, v: x[[0.0, 1.0]], IndexError, "getitem:", "float64"),
    "zero step": (lambda x, v: x[::0], IndexError, "getitem:", "slice(None, None, 0)"),
    "ragged index": (lambda x, v: x[[[0], [0, 1]]], ValueError, "getitem:", "[[0], [0, 1]]"),
    "gather floats": (lambda x, v: tg.gather(x, [0.0, 1.0]), TypeError, "gather:", "float64", "integer"),
    "gather bools": (lambda x, v: tg.gather(x, [True, False]), TypeError, "gather:", "bool", "integer"),
    "gather None": (lambda x, v: tg.gather(x, None), TypeError, "gather:", "None", "indices"),
    "gather strings": (lambda x, v: tg.gather(x, ["a"]), TypeError, "gather:", "'a'", "indices"),
    "gather ragged": (lambda x, v: tg.gather(x, [[0], [0, 1]]), ValueError, "gather:", "ragged", "indices"),
    "gather 0-d": (lambda x, v: tg.gather(1.0, 0), AxisError, "gather:", "0-D"),
    "gather axis": (lambda x, v: tg.gather(x, 0, axis=2), AxisError, "gather:", "axis 2", "[-2, 2)"),
    "sum axis": (lambda x, v: tg.sum(x, axis=2), AxisError, "sum:", "axis 2", "[-2, 2)"),
    "sum axis type": (lambda x, v: x.sum(axis="rows"), TypeError, "sum:", "'rows'"),
    "sum float axis": (lambda x, v: x.sum(axis=0.5), TypeError, "sum:", "0.5"),
    "mean axis": (lambda x, v: x.mean(axis=-3), AxisError, "mean:", "axis -3", "[-2, 2)"),
    "mean axis twice": (lambda x, v: x.mean(axis=(0, -2)), ValueError, "mean:", "(0, -2)", "once"),
    "softmax axis": (lambda x, v: tg.softmax(x, axis=5), AxisError, "softmax:", "axis 5"),
    "concat axis": (lambda x, v: tg.concat([x, x], axis=2), AxisError, "concat:", "axis 2"),
    "transpose axes": (lambda x, v: tg.transpose(x, (0, 0)), ValueError, "transpose:", "(0, 0)", "(2, 3)"),
    "transpose range": (lambda x, v: tg.transpose(x, (0, 2)), AxisError, "transpose:", "axis 2"),
    "transpose type": (lambda x, v: tg.transpose(x, "ab"), TypeError, "transpose:", "axes"),
    "reshape type": (lambda x, v: tg.reshape(x, 2.5), TypeError, "reshape:", "2.5", "shape"),
    "tensor_slice rank": (lambda x, v: tg.tensor_slice(x, (0,), (1,)), ValueError, "tensor_slice:", "(0,)", "(2, 3)"),
    "tensor_slice type": (lambda x, v: tg.tensor_slice(x, (0, 0.5), (1, 1)), TypeError, "tensor_slice:", "begin"),
    "conv2d stride": (lambda x, v: tg.conv2d(IMAGE, IMAGE, stride=0), ValueError, "conv2d:", "stride=0"),
    "conv2d pad": (lambda x, v: tg.conv2d(IMAGE, IMAGE, pad=(1, -1)), ValueError, "conv2d:", "pad=(1, -1)"),
    "conv2d dilation": (lambda x, v: tg.conv2d(IMAGE, IMAGE, dilation=(1, 1, 1)), ValueError, "conv2d:", "dilation=(1, 1, 1)"),
    "conv2d stride type": (lambda x, v: tg.conv2d(IMAGE, IMAGE, stride="2"), TypeError, "conv2d:", "'2'", "stride"),
    "pool ksize": (lambda x, v: tg.max_pool2d(IMAGE, 0), ValueError, "max_pool2d:", "ksize=0"),
    "pool ksize type": (lambda x, v: tg.avg_pool2d(IMAGE, None), TypeError, "avg_pool2d:", "None", "ksize"),
    "pool pad": (lambda x, v: tg.avg_pool2d(IMAGE, 2, pad=2), ValueError, "avg_pool2d:", "pad (2, 2)", "ksize (2, 2)"),
    "layer_norm eps": (lambda x, v: tg.layer_norm(x, v, v, eps="small"), TypeError, "layer_norm:", "'small'", "eps"),
    "class type": (lambda x, v: tg.softmax_crossentropy(x, [0.0, 1.0]), TypeError, "softmax_crossentropy:", "float64", "integers"),
    # data: the operation and the argument
    "param ragged": (lambda x, v: tg.param([[1.0], [1.0, 2.0]]), ValueError, "param:", "ragged", "'data'"),
    "tensor ragged": (lambda x, v: tg.tensor([[1.0], 2.0]), ValueError, "tensor:", "ragged", "'data'"),
    "param string": (lambda x, v: tg.param("1.5"), TypeError, "param:", "'1.5'", "'data'"),
    "param None": (lambda x, v: tg.param(None), TypeError, "param:", "None", "'data'"),
    "param object": (lambda x, v: tg.param(np.array([1.0, None])), TypeError, "param:", "object", "'data'"),
    "param datetime": (lambda x, v: tg.param(np.array(["2020-01-01"], dtype="M8[D]")), TypeError, "param:", "datetime64", "'data'"),
    "param dict": (lambda x, v: tg.param({"a": 1}), TypeError, "param:", "{'a': 1}", "'data'"),
    "param set": (lambda x, v: tg.param({1.0}), TypeError, "param:", "{1.0}", "'data'"),
    "param float16": (lambda x, v: tg.param(np.float16([1.0])), TypeError, "param:", "float16", "float32, float64"),
    "tensor structured": (lambda x, v: tg.tensor(np.zeros(2, dtype="i4,i4")), TypeError, "tensor:", "'data'"),
    "param longdouble": (lambda x, v: tg.param(np.ones(1, np.clongdouble)), TypeError, "param:", "complex256", "'data'"),
    "tensor drops a part": (lambda x, v: tg.tensor([1j], dtype=float), TypeError, "tensor:", "imaginary", ".real"),
    "list of params": (lambda x, v: tg.param([v, v]), TypeError, "np.stack"),
    "operand ragged": (lambda x, v: x + [[1.0], [1.0, 2.0]], ValueError, "add:", "ragged", "'x2'"),
    "operand string": (lambda x, v: x * "abc", TypeError, "mul:", "'abc'", "'x2'"),
    "left operand string": (lambda x, v: "abc" - x, TypeError, "sub:", "'abc'", "'x1'"),
    "operand None": (lambda x, v: x / None, TypeError, "div:", "None", "'x2'"),
    "operand object": (lambda x, v: x + object(), TypeError, "add:", "object", "'x2'"),
    "operand dict": (lambda x, v: x + {}, TypeError, "add:", "{}", "'x2'"),
    "operand datetime": (lambda x, v: x * np.timedelta64(1, "D"), TypeError, "mul:", "timedelta64", "'x2'"),
    "matmul string": (lambda x, v: x @ "abc", TypeError, "matmul:", "'abc'", "'x2'"),
    "unary string": (lambda x, v: tg.sin("abc"), TypeError, "sin:", "'abc'", "'x'"),
    "unary None": (lambda x, v: tg.exp(None), TypeError, "exp:", "None", "'x'"),
    "unary ragged": (lambda x, v: tg.log([[1.0], [2.0, 3.0]]), ValueError, "log:", "ragged", "'x'"),
    "softmax object": (lambda x, v: tg.softmax([None, 1.0]), TypeError, "softmax:", "'x'"),
    "where cond": (lambda x, v: tg.where("abc", x, x), TypeError, "where:", "'abc'", "'condition'"),
    "where branch": (lambda x, v: tg.where(True, x, {}), TypeError, "where:", "{}", "'y'"),
    "concat what": (lambda x, v: tg.concat(None), TypeError, "concat:", "None"),
    "concat item": (lambda x, v: tg.concat([v, "abc"]), TypeError, "concat:", "'abc'", "'arrays[1]'"),
    "layer_norm data": (lambda x, v: tg.layer_norm(x, None, v), TypeError, "layer_norm:", "None", "'gamma'"),
    "conv2d data": (lambda x, v: tg.conv2d(IMAGE, "abc"), TypeError, "conv2d:", "'abc'", "'k'"),
    "pool data": (lambda x, v: tg.max_pool2d({}, 2), TypeError, "max_pool2d:", "{}", "'x'"),
    "targets": (lambda x, v: tg.softmax_crossentropy(x, None), TypeError, "softmax_crossentropy:", "None", "'targets'"),
    "mse_loss target": (lambda x, v: tg.mse_loss(x, None), TypeError, "mse_loss:", "None", "'target'"),
    "mse_loss ragged": (lambda x, v: tg.mse_loss([[1.0], [1.0, 2.0]], x), ValueError, "mse_loss:", "ragged", "'prediction'"),
    "assign data": (lambda x, v: x.assign("abc"), TypeError, "assign:", "'abc'", "'value'"),
    "grad data": (lambda x, v: setattr(x, "grad", "abc"), TypeError, "grad:", "'abc'", "'value'"),
    "int to a negative power": (lambda x, v: tg.tensor([2, 3]) ** -1, ValueError, "pow:", "negative integer powers"),
    # backward
    "seed shape": (lambda x, v: (x * 1.0).backward(np.ones((3, 2))), ValueError, "backward:", "(3, 2)", "(2, 3)"),
    "seed not broadcast": (lambda x, v: (x * 1.0).backward(1.0), ValueError, "backward:", "()", "(2, 3)"),
    "seed of a scalar": (lambda x, v: tg.sum(x).backward([1.0]), ValueError, "backward:", "(1,)", "()"),
    "seed ragged": (lambda x, v: tg.sum(x).backward([[1.0], [1.0, 2.0]]), ValueError, "backward:", "ragged", "'seed'"),
    "seed string": (lambda x, v: tg.sum(x).backward("abc"), TypeError, "backward:", "'abc'", "'seed'"),
    "seed complex": (lambda x, v: tg.sum(x).backward(1j), TypeError, "backward:", "complex128", ".real"),
    "no gradient": (lambda x, v: tg.tensor(1.0).backward(), RuntimeError, "backward:", "does not require a gradient", "tg.param"),
    "detached": (lambda x, v: (x.detach() * 2.0).backward(), RuntimeError, "backward:", "does not require a gradient"),
    "no_grad": (lambda x, v: tg.no_grad(lambda: x * 2.0)().backward(), RuntimeError, "backward:", "tg.no_grad()"),
    "backward of a number": (lambda x, v: tg.backward(3.0), TypeError, "backward:", "float 3.0"),
    "backward of an array": (lambda x, v: tg.backward(np.ones(2)), TypeError, "backward:", "ndarray", "(2,)"),
    "backward of nothing": (lambda x, v: tg.backward(None), TypeError, "backward:", "None"),
    # the tensor itself
    "item": (lambda x, v: x.item(), ValueError, "item:", "(2, 3)", "one element"),
    "bool": (lambda x, v: bool(x), ValueError, "bool:", "(2, 3)", "one element"),
    "float": (lambda x, v: float(x), ValueError, "(2, 3)", "one element"),
    "asarray": (lambda x, v: np.asarray(x), TypeError, "x.numpy()"),
    "setitem": (lambda x, v: x.__setitem__(0, 1.0), TypeError, "setitem:", "tg.where"),
    "assign to a result": (lambda x, v: (x * 1.0).assign(1.0), RuntimeError, "assign:", "mul"),
    "write to a result": (lambda x, v: (x * 1.0).data.__setitem__(0, 1.0), ValueError, "data:", "mul"),
    "retain_grad": (lambda x, v: tg.tensor(1.0).retain_grad(), RuntimeError, "retain_grad:", "no gradient"),
    "SGD of a tensor": (lambda x, v: tg.SGD(x, lr=0.1), TypeError, "SGD:", "list"),
    "SGD of a result": (lambda x, v: tg.SGD([v, x * 1.0], lr=0.1), TypeError, "SGD:", "(2, 3)", "tg.param"),
    "SGD of a constant": (lambda x, v: tg.SGD([tg.tensor(1.0)], lr=0.1), TypeError, "SGD:", "tg.param"),
    "SGD lr": (lambda x, v: tg.SGD([x], lr="fast").step(), TypeError, "SGD:", "'fast'", "lr"),
    "SGD nan": (lambda x, v: tg.SGD([x], lr=np.nan).step(), ValueError, "SGD:", "lr=nan", "finite"),
    "check_gradients data": (lambda x, v: tg.testing.check_gradients(tg.sin, "abc"), TypeError, "check_gradients:", "inputs[0]"),
    "check_gradients result": (lambda x, v: tg.testing.check_gradients(lambda t: 1.0, 2.0), TypeError, "check_gradients:", "1.0"),
}
# fmt: on


@in_one("case", CASES)
def test_error(case):
    call, error, *named = CASES[case]
    scene = Scene()
    before = scene.state()
    message = failure(call, error, scene.x, scene.v)
    for text in named:
        assert text in message
    assert f"{__file__}:{call.__code__.co_firstlineno}" in message
    assert scene.state() == before
    scene.check_usable()


def test_shape_errors_say_how_to_fix_it():
    message = failure(lambda: tg.param([1.0]) @ [1.0, 2.0], ValueError)
    assert "received" in message
    assert "expected" in message
    assert "Transpose or reshape" in message


# -- backward that fails changes nothing -------------------------------------------------------


def test_cleared_tape_is_an_error_naming_the_recording():
    x = tg.param([1.0, 2.0])
    y, line = tg.sum(x * 2.0), sys._getframe().f_lineno
    y.backward()
    tg.tape_reset()
    message = failure(y.backward, RuntimeError)
    assert "tape_reset()" in message
    assert f"{__file__}:{line}" in message
    np.testing.assert_array_equal(x.grad, [2.0, 2.0])
    tg.sum(x * 3.0).backward()
    np.testing.assert_array_equal(x.grad, [5.0, 5.0])


def test_new_results_of_a_cleared_result_are_an_error_too():
    x = tg.param(1.0)
    y = x * 2.0
    tg.tape_reset()
    assert "tape_reset()" in failure(((y + x) * y).backward, RuntimeError)
    assert x.grad is None


def test_rule_that_raises_half_way_leaves_every_gradient(monkeypatch):
    a, b = tg.param(1.0), tg.param(2.0)
    y = tg.sin(a) * b
    y.backward()
    before = (a.grad.copy(), b.grad.copy())
    monkeypatch.delitem(VJPS, "sin")
    with tg.use_backend("native"):
        message = failure(y.backward, NotImplementedError)
    assert "sin of shape ()" in message
    assert f"{__file__}:" in message
    np.testing.assert_array_equal((a.grad, b.grad), before)


def test_gradient_of_a_wrong_shape_is_never_written(monkeypatch):
    a, b = tg.param([1.0, 2.0]), tg.param([3.0, 4.0])
    y = tg.concat([a, b])
    monkeypatch.setitem(VJPS, "concat", (lambda g, y, a, b, axis: g, lambda g, y, a, b, axis: g))
    with tg.use_backend("native"), pytest.raises((RuntimeError, ValueError)):
        y.backward()
    assert a.grad is None
    assert b.grad is None


def test_failure_inside_no_grad_leaves_recording_on():
    x = tg.param(1.0)
    with pytest.raises(ValueError, match="boom"), tg.no_grad():
        raise ValueError("boom")
    assert (x * 2.0).requires_grad


def test_comparison_with_another_shape_names_both():
    message = failure(lambda: tg.param(np.ones(2)) == np.ones(3), ValueError)
    assert "(2,)" in message
    assert "(3,)" in message


def test_long_values_are_cut_in_messages():
    assert len(failure(lambda: tg.param("x" * 10_000), TypeError)) < 500
    assert len(failure(lambda: tg.param(np.ones(3))["y" * 10_000], IndexError)) < 500


# -- the user's line ---------------------------------------------------------------------------


def test_a_call_that_passes_through_numpy_names_the_users_line():
    x, lines = tg.param(np.ones((2, 3))), []
    for call in (
        lambda: np.apply_along_axis(lambda row: tg.param(row) @ np.ones(2), 1, np.ones((2, 3))),
        lambda: np.linalg.multi_dot([np.ones((2, 2)), x, np.ones((2, 2))]),
        lambda: np.vectorize(lambda v: tg.param([v]) @ np.ones(2))(np.ones(2)),
        lambda: np.asarray(x),
    ):
        lines.append(call.__code__.co_firstlineno)
        with pytest.raises((TypeError, ValueError), match=rf"{__file__}:{lines[-1]}\)"):
            call()


def test_a_call_that_passes_through_pythons_library_names_the_users_line():
    x = tg.param(np.ones((2, 3)))
    call = functools.partial(copy.deepcopy, x * 2.0)
    message, line = failure(call, TypeError), failure.__code__.co_firstlineno
    where = int(re.search(rf"{__file__}:(\d+)\)", message).group(1))
    assert line < where < line + 10


def test_errors_from_the_graph_engine_name_the_users_line():
    pytest.importorskip("tensorflow")
    call, line = lambda: tg.lowering.set_cache_limit(0), sys._getframe().f_lineno
    assert f"{__file__}:{line})" in failure(call, ValueError)
    call, line = lambda: tg.lowering.lower(tg.tensor(1.0)), sys._getframe().f_lineno
    assert f"{__file__}:{line})" in failure(call, RuntimeError)


INSTALLED = "/usr/lib/site-packages/app/main.py"


def test_whose_code_a_file_holds():
    assert ORIGINS[np.__file__] == ORIGINS[tg.__file__] == ORIGINS[threading.__file__] == BETWEEN
    assert ORIGINS[tg.fallback.__file__] == ORIGINS["<frozen runpy>"] == BETWEEN
    assert ORIGINS[INSTALLED] == ORIGINS[pytest.__file__] == LIBRARY
    assert ORIGINS[f"{os.path.dirname(os.__file__)}/site-packages/app/main.py"] == LIBRARY
    assert ORIGINS[__file__] == ORIGINS["<stdin>"] == ORIGINS["/home/me/numpy_notes.py"] == USER


def test_a_program_that_is_itself_installed_has_a_line_too():
    names = {"user_line": user_line, "found": []}
    code = "def run():\n    found.append(user_line())\n"
    exec(compile(code, INSTALLED, "exec"), names)
    thread = threading.Thread(target=names["run"])  # a stack of its own, without this file
    thread.start()
    thread.join()
    assert names["found"] == [f"{INSTALLED}:2"]
    names["run"]()
    assert names["found"][1] == f"{__file__}:{sys._getframe().f_lineno - 1}"


def test_an_installed_program_is_named_only_where_no_user_calls_it():
    names = {"x": tg.param(2.0), "found": []}
    code = "def double():\n    found.append(x * 2.0)\n\ndef run():\n    double()\n    user()\n"
    exec(compile(code, INSTALLED, "exec"), names)
    names["user"] = lambda: names["double"]()
    thread = threading.Thread(target=names["run"])
    thread.start()
    thread.join()
    places = [y._entry._code.co_filename for y in names["found"]]
    assert places == [INSTALLED, __file__]


# -- NumPy's warnings --------------------------------------------------------------------------


def test_numpys_warnings_name_the_users_line_and_do_not_hide_each_other(run_python):
    code = """
        import warnings
        import numpy as np, tapegraph as tg
        x = tg.param([0.0, -1.0])
        with warnings.catch_warnings(record=True) as caught:
            for _ in range(2):
                first = tg.log(x)
                tg.sqrt(x)
                1.0 / x
                x**-0.5
        assert {w.filename for w in caught} == {"<string>"}
        np.testing.assert_array_equal(first.data, [-np.inf, np.nan])
        print([(w.lineno - 7, str(w.message)) for w in caught])
    """
    assert run_python(code).stdout.strip() == str(
        [
            (0, "divide by zero encountered in log"),
            (0, "invalid value encountered in log"),
            (1, "invalid value encountered in sqrt"),
            (2, "divide by zero encountered in div"),
            (3, "divide by zero encountered in pow"),
            (3, "invalid value encountered in pow"),
        ]
    )


def test_numpys_own_settings_hold():
    x = tg.param([0.0])
    with np.errstate(divide="ignore"):
        assert tg.log(x).item() == -np.inf
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        tg.log(x)
    seen = []
    with np.errstate(divide="call", call=lambda kind, flag: seen.append(kind)):
        tg.log(x)
    assert seen == ["divide by zero"]


def test_a_cell_of_a_notebook_is_named_as_ipython_names_it(monkeypatch):
    file, source = "/tmp/ipykernel_7/12.py", "x = tg.param(2.0)\ny = tg.tanh(x)\n"

    def titled(name):
        return ("Cell", "In[3]") if name == file else None

    shell = SimpleNamespace(compile=SimpleNamespace(format_code_name=titled))
    ipython = SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    lines = source.splitlines(keepends=True)
    monkeypatch.setitem(linecache.cache, file, (len(source), None, lines, file))
    cell: dict = {"tg": tg}
    exec(compile(source, file, "exec"), cell)
    assert "In[3]:2" in str(tg.tape())
    assert linecache.getline("In[3]", 2) == "y = tg.tanh(x)\n"
    with pytest.raises(TypeError, match=r"\(at .*test_errors\.py:\d+\)"):
        tg.sum(None)
