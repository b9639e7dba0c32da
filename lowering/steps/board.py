"""A step's graph for TensorBoard, under the names of its parameters and arguments."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from tapegraph.lowering.runtime import tensorflow


def write_board(folder: str | os.PathLike[str], function: Any, labels: Mapping[str, str]) -> None:
    """Write the graph of a concrete function, with other names for some of its placeholders."""
    tf = tensorflow()
    with tf.summary.create_file_writer(os.fspath(folder)).as_default():
        tf.summary.graph(renamed(function.graph.as_graph_def(), labels))


def renamed(graph: Any, labels: Mapping[str, str]) -> Any:
    """Return a graph whose nodes have other names; what reads a variable is named after it."""
    names = dict(labels)
    for node in graph.node:
        if node.op == "ReadVariableOp" and node.input[0] in labels:
            names[node.name] = labels[node.input[0]].removesuffix("variable") + "read"
    taken = {node.name for node in graph.node}
    for old, label in names.items():
        names[old] = _free(re.sub(r"[^A-Za-z0-9_./-]", "_", label).lstrip("_/-") or "value", taken)
    for node in graph.node:
        node.name = names.get(node.name, node.name)
        node.input[:] = [_input(text, names) for text in node.input]
    return graph


def _input(text: str, names: Mapping[str, str]) -> str:
    """Return where a node's input comes from, such as ``^name`` or ``name:1``, with new names."""
    control, name, output = re.fullmatch(r"(\^?)([^:]*)(.*)", text).groups()  # type: ignore[union-attr]
    return control + names.get(name, name) + output


def _free(name: str, taken: set[str]) -> str:
    """Return a name that no node has, from now on taken."""
    count, found = 0, name
    while found in taken:
        count += 1
        found = f"{name}_{count}"
    taken.add(found)
    return found
