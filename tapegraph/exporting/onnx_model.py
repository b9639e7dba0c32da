"""A recorded function as an ONNX file, for inference."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegraph.errors import message
from tapegraph.exporting.names import Arguments, ParameterNames, output_names
from tapegraph.exporting.onnx_graph import NoNode, OnnxGraph, Wire
from tapegraph.exporting.onnx_rows import ROWS
from tapegraph.exporting.recorded import FreeFunction, Length, Places
from tapegraph.recording.op import INPUT
from tapegraph.recording.program import touches_complex
from tapegraph.saving import files
from tapegraph.typed import Pytree


def export(f: Callable[..., Any], path: str, arguments: Arguments, params: Pytree) -> None:
    """Write an ONNX file; see `tapegraph.export`."""
    try:
        onnx = importlib.import_module("onnx")
    except ImportError:
        fix = 'Install it: pip install "tapegraph[onnx]"; or name a folder, for a SavedModel.'
        received = "a path that ends in .onnx in an environment without onnx"
        raise ImportError(message("export", received, "the package onnx", fix)) from None
    recorded = FreeFunction("export", f, arguments.arrays, arguments.batched)
    named = ParameterNames("export", params)
    parameters = {slot: named.of(param) for slot, param in recorded.parameters.items()}
    outputs = output_names("export", recorded.runs[0].result)
    taken = [*arguments.names, *filter(None, parameters.values()), *outputs]
    for name in taken:
        if taken.count(name) > 1:
            received = f"{name!r} as the name of two inputs, parameters or outputs"
            fix = "Rename the parameter, with tg.param(name=), or the key of the output."
            raise ValueError(message("export", received, "one name each", fix))
    graph, program = OnnxGraph(onnx, taken), recorded.program

    def typed(name: str, dtype: Any, shape: tuple[Any, ...]) -> Any:
        lengths = [{(1, 0): "batch"}.get(n) if isinstance(n, Length) else n for n in shape]
        return onnx.helper.make_tensor_value_info(name, graph.type_of(dtype), lengths)

    inputs = []
    for name, x, free in zip(*arguments, strict=True):
        inputs.append(typed(name, x.dtype, (Length(1, 0), *x.shape[1:]) if free else x.shape))
        if free and graph.batch is None:
            graph.batch = Wire(graph, name, x.dtype).node("Shape", end=1).reshaped(())
    wires = _emitted(graph, recorded, parameters, arguments.names)
    results = []
    for name, slot in zip(outputs, program.outputs, strict=True):
        graph.nodes.append(onnx.helper.make_node("Identity", [wires[slot].name], [name], name))
        results.append(typed(name, program.dtypes[slot], program.shapes[slot]))
    model = onnx.helper.make_model(
        onnx.helper.make_graph(graph.nodes, "function", inputs, results, graph.initializers),
        opset_imports=[onnx.helper.make_opsetid("", 18)],  # which onnxruntime has since 1.14
        ir_version=8,
        producer_name="tapegraph",
    )
    onnx.checker.check_model(model, full_check=True)
    files.write_file("export", path, lambda beside: onnx.save_model(model, beside))


def _emitted(
    graph: OnnxGraph, recorded: FreeFunction, parameters: dict[int, Any], names: Sequence[str]
) -> list[Any]:
    """Return the value of every slot; None of a Python number."""
    program = recorded.program
    wires: list[Any] = [None] * len(program)
    for slot in program.fed:
        if program.ops[slot] is not INPUT:
            wires[slot] = _constant(graph, recorded, slot, parameters.get(slot))
    for name, place in zip(names, recorded.runs[0].inputs, strict=True):
        if place is not None:
            wires[place] = Wire(graph, name, program.dtypes[place], program.shapes[place])
    for slot, op in enumerate(program.ops):
        if not program.inputs[slot]:
            continue
        graph.stem, row = op.name, ROWS.get(op.name)
        out = Wire(graph, "", program.dtypes[slot], program.shapes[slot])
        try:
            if row is None or touches_complex(program, slot):
                raise NoNode("no nodes stand for it, or none for its dtype")
            if 0 in out.shape and not any(isinstance(n, Length) for n in out.shape):
                wires[slot] = graph.constant(np.zeros(out.shape), out.dtype)  # nodes fail for none
                continue
            found = row(out, *_operands(graph, recorded, slot, wires), **program.attrs[slot])
        except NoNode as error:
            received = f"{recorded.recording.describe(slot)}: {error}"
            expected, fix = "operations with nodes in ONNX", "Name a folder, for a SavedModel."
            raise NotImplementedError(message("export", received, expected, fix)) from None
        wires[slot] = Wire(graph, found.to(out.dtype).name, out.dtype, out.shape)
    return wires


def _constant(graph: OnnxGraph, recorded: FreeFunction, slot: int, name: str | None) -> Wire:
    """Return a parameter, a constant, or whole numbers that follow the batch."""
    dtype, shape = recorded.program.dtypes[slot], recorded.program.shapes[slot]
    found = recorded.constant(slot)
    if isinstance(found, np.ndarray):
        return graph.constant(found, dtype, name)
    if isinstance(found, Places):
        steps = graph.constant(0, np.int64).node("Range", found.length, 1)
        along = tuple(-1 if axis == found.axis else 1 for axis in range(len(shape)))
        first, step = (graph.constant(part, np.int64) for part in (found.first, found.step))
        wire = first + step * steps.reshaped(along)
    else:
        wire = graph.ints(found if shape else [found]).reshaped(shape)
    return Wire(graph, wire.to(dtype).name, dtype, shape)


def _operands(graph: OnnxGraph, recorded: FreeFunction, slot: int, wires: list[Any]) -> list[Wire]:
    """Return an entry's inputs, in the dtype in which NumPy computes it."""
    program, values = recorded.program, recorded.recording.values
    op, inputs, wanted = program.ops[slot], program.inputs[slot], program.dtypes[slot]
    converted = op.promotes and (op.differentiable or (True,) * len(inputs))
    if op.differentiable == () and len(inputs) > 1:  # a comparison, whose result is of another kind
        kinds = (values[i] if wires[i] is None else program.dtypes[i] for i in inputs)
        wanted, converted = np.result_type(*kinds), (True,) * len(inputs)
    operands = []
    for position, i in enumerate(inputs):
        wire = graph.constant(values[i], wanted) if wires[i] is None else wires[i]
        operands.append(wire.to(wanted) if converted and converted[position] else wire)
    return operands
