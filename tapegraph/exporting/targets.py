"""`export` and `to_tensorflow`: a SavedModel, an ONNX file, or a TensorFlow function."""

from __future__ import annotations

import importlib
import os
from typing import Any

from tapegraph.errors import check_callable, message, path_of
from tapegraph.exporting.recorded import arguments_of
from tapegraph.typed import ArrayLike, Fun, Pytree

_FORM = "Write tg.export(f, path, x), with an example for each argument of f."
_OTHER_FORMATS = (".h5", ".hdf5", ".keras", ".pb", ".tflite")
_CONVERT = "Keras reads the folder by keras.layers.TFSMLayer, and LiteRT's converter takes it."


def export(
    f: Fun,
    path: str | os.PathLike[str],
    *examples: ArrayLike,
    params: Pytree = None,
    batch: bool = True,
) -> None:
    """Write a function of arrays as a TensorFlow SavedModel or ONNX, which needs no tapegraph.

    The function is recorded for batches of three sizes; numbers that grow with the batch become
    lengths of the model. The third size checks a SavedModel against the function.

    :param f: Takes arrays or tensors by position, and returns a tensor, or a dict, list or tuple of
        tensors. Parameters that it reads become variables, other tensors and arrays constants.
    :param path: The folder to write, for a SavedModel; or a file that ends in ``.onnx``, for
        inference alone.
    :param *examples: One per argument, of its dtype and of the shape of a real batch, whose rows
        make the batches of other sizes.
    :param params: A dict, list or object whose `parameters` become variables, by their paths (those
        in a list by their own names), while others become constants. By default all parameters that
        the function reads become variables, by their own names, or ``parameter_0``, ``parameter_1``
        and so on in the order of reading. In ONNX they are initializers of these names.
    :param batch: Whether the leading axis is free: that of the first example, and of others as
        long.
    :raises ValueError: The function differs with the size of the batch (the message names the
        line), draws random numbers, or changes state; names repeat, or are invalid in the format;
        an ONNX file would exceed 2 GB; or the path ends in another format's suffix.
    :raises TypeError: An argument or a result is of the wrong kind.
    :raises tapegraph.lowering.NotLowered: An operation has no node in TensorFlow.
    :raises tapegraph.lowering.Unavailable: TensorFlow is not installed.
    :raises NotImplementedError: An operation has no nodes in ONNX, or onnxruntime none for its
        dtype.
    :raises ImportError: The package onnx is not installed.
    :raises OSError: The path cannot be written.

    Signatures: ``serving_default``, also named ``serve``, takes the function's arguments by name
    and gives its results as ``output``, or by the keys of the dict, or as ``output_0`` and so on.
    Where the result is a single float without axes, ``value_and_gradients`` gives ``loss`` and
    ``gradient_<name>`` for each variable. The loaded model's ``parameters`` are its variables by
    name. An ONNX file has the inputs and outputs of ``serving_default``; its operators are those of
    version 18, its batch has the name ``batch``.

    >>> import tempfile
    >>> w = tg.param([[1.0], [2.0]], name="w")
    >>> folder = tempfile.mkdtemp()
    >>> tg.export(lambda x: x @ w, folder, np.ones((8, 2)))
    >>> import tensorflow as tf
    >>> model = tf.saved_model.load(folder)
    >>> model.serve(np.array([[3.0, 4.0]]))["output"].numpy()
    array([[11.]])
    >>> sorted(model.parameters)
    ['w']
    """
    # By a string: the core knows no engine, and `import tapegraph` loads none.
    check_callable("export", f, fix=_FORM)
    where = path_of("export", path, _FORM)
    if where.lower().endswith(_OTHER_FORMATS):
        expected = "the folder of a SavedModel, or a file that ends in .onnx"
        raise ValueError(message("export", f"the path {where}", expected, _CONVERT))
    name = "exporting.onnx" if where.lower().endswith(".onnx") else "lowering.export"
    target = importlib.import_module(f"tapegraph.{name}")
    target.export(f, where, arguments_of("export", f, examples, batch), params)


def function(f: Fun, params: Pytree = None) -> Any:
    """Return a function of arrays as a ``tf.function``, for use inside TensorFlow.

    In ``tf.data.Dataset.map``, a Keras layer or another ``tf.function`` its nodes become part of
    the graph, which TensorFlow differentiates. It is recorded once per combination of types, as in
    `export`; a leading axis of unknown length stays free. It copies parameters at its first call,
    and does not see how they change later, as a ``tf.function`` of variables does.

    :param f: Takes tensors by position, and returns a tensor, or a dict, list or tuple of tensors.
    :param params: The variables' parameters, as in `export`.
    :returns: Tf.function. Its ``parameters`` are the variables by name; they start with the
        parameters' numbers when first read, and then change on their own.
    :raises ValueError, TypeError, tapegraph.lowering.NotLowered, tapegraph.lowering.Unavailable: As
        `export`, in a call with arguments of new types.

    >>> import tensorflow as tf
    >>> scaled = tg.function(lambda x: tg.tanh(x) * 2.0)
    >>> data = tf.data.Dataset.from_tensor_slices(np.zeros((3, 2))).batch(2).map(scaled)
    >>> [y.shape for y in data.as_numpy_iterator()]
    [(2, 2), (1, 2)]
    """
    check_callable("function", f)
    return importlib.import_module("tapegraph.lowering.export").function(f, params)
