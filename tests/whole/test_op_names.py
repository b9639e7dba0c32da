"""Outside its family's files no operation is named: what sets it apart is a trait of it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tapegraph.ops import COMPOSITIONS, FAMILIES
from tapegraph.recording.op import OPS

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path.relative_to(ROOT)
    for folder in ("tapegraph", "fallback", "lowering")
    for path in (ROOT / folder).rglob("*.py")
)
# Where every file is a family's own, or one of a family stands among others.
FAMILY_FOLDERS = {
    Path(folder)
    for folder in (
        "tapegraph/ops",
        "fallback/rules",
        "lowering/rows",
    )
}
# Names that may stand elsewhere: None for all of them.
ALLOWED: dict[str, tuple[set[str] | None, str]] = {
    "tapegraph/ops/__init__.py": ({"fft", "index"}, "a family's name"),
    **{
        f"tapegraph/{name}.py": ({"fft"}, "a module's name")
        for name in ("autograd/numpy/__init__", "autograd/numpy/numpy_wrapper")
    },
    "tapegraph/__init__.py": ({"argsort", "fft"}, "a module's name, and one of NumPy's"),
    "tapegraph/numpy_names.py": (None, "names of NumPy's, of which some are called alike"),
    "tapegraph/autograd/scipy/signal.py": ({"convolve"}, "the name of a function of SciPy's"),
    **{
        f"tapegraph/scalars/{name}.py": (None, "the scalar engine's own operations, as vectors")
        for name in ("numbers", "recorder")
    },
    "tapegraph/tensors/value.py": (None, "the scalar engine's own operations are called alike"),
    "tapegraph/recording/numpy_functions.py": (
        {"where", "detach"},
        "an argument of NumPy's, and the method of tensors",
    ),
    "tapegraph/batching.py": (None, "the batching rules of every family"),
    "tapegraph/transforms/reverse.py": ({"detach"}, "the method of tensors"),
    "tapegraph/integrate.py": ({"sqrt"}, "how often a loop keeps its carry"),
    "fallback/plan/records.py": ({"astype"}, "the method of arrays"),
    "tapegraph/tensors/dual.py": ({"index"}, "Python's word for a conversion"),
    "tapegraph/tensors/tensor.py": ({"index"}, "Python's word for a conversion"),
    "tapegraph/tree.py": ({"all"}, "Python's own function"),
    "tapegraph/differentiation/jvps.py": (None, "the tangent rules of every family"),
    "tapegraph/differentiation/slopes.py": (
        None,
        "slopes, and reads, of every family",
    ),
    "tapegraph/capture.py": ({"detach", "reshape"}, "what new values are recorded as"),
    "tapegraph/recording/program.py": (
        {"where", "pow"},
        "the heading of a column; which NumPy computes by its exponent's value",
    ),
    "tapegraph/loops/branches.py": ({"index"}, "an argument's name"),
    "tapegraph/loops/scan_entry.py": (
        {"add", "sub", "neg", "mul"},
        "operations that take less time than reading their result from memory",
    ),
    "tapegraph/loops/scan.py": ({"sqrt"}, "an option's value"),
    "tapegraph/optim/update_rules.py": ({"beta", "mean"}, "a slot's name, and a decay"),
    "tapegraph/other_names.py": (None, "names of other libraries, of which some are called alike"),
    "tapegraph/seeing/anomaly.py": (
        None,
        "what to write where a result is not finite",
    ),
    "tapegraph/autograd/scipy/stats.py": (
        {"beta", "gamma", "log", "norm"},
        "functions and distributions, of which some are called alike",
    ),
    **{
        f"tapegraph/{name}.py": (None, "Python's own operators, of which some are called alike")
        for name in ("compiling/inputs", "tensors/run_float")
    },
    "fallback/plan/ir.py": (None, "methods of NumPy's arrays, of which some are called alike"),
    "tapegraph/drawing/labels.py": (None, "whose operands may change places in a picture"),
    "tapegraph/exporting/onnx.py": (None, "the nodes of ONNX, by operation"),
    "lowering/translate.py": ({"pow", "within"}, "what XLA multiplies out, and clamps"),
    "lowering/rows/__init__.py": (None, "the list of gaps, read before the families are imported"),
    "fallback/plan/compiler.py": (
        {"sum", "mean", "getitem", "tensor_slice", "gather", "index", "scatter", "fmax", "fmin"},
        "operations that keep a NaN, or drop it",
    ),
    "tapegraph/differentiation/products.py": (None, "the products with strong zeros"),
    "fallback/rules/__init__.py": (None, "the strong zeros of Tensors, by operation"),
}


def is_a_familys(path: Path) -> bool:
    """Return whether a file is a family's own, or composes operations under their own names."""
    composed = path.parent == Path("tapegraph/ops") and path.stem in COMPOSITIONS
    return composed or (path.parent in FAMILY_FOLDERS and path.stem in FAMILIES)


def names_in(source: str) -> set[str]:
    """Return the operations that strings of a source name, docstrings apart.

    A string names operations where each of its words is one: ``"sum"``, ``"add sub mul".split()``.
    """
    tree = ast.parse(source)
    prose = {
        id(statement.value)
        for statement in ast.walk(tree)
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    }
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
    ]
    return {word for text in texts if OPS.keys() >= set(text.split()) for word in text.split()}


def test_no_operation_is_named_outside_its_family():
    others = {p.as_posix(): p for p in SOURCES if not is_a_familys(p)}
    found = {name: names_in((ROOT / path).read_text()) for name, path in others.items()}
    assert [name for name in ALLOWED if not found.get(name)] == [], "nothing is named: strike them"
    for name, (allowed, _) in ALLOWED.items():
        found[name] = set() if allowed is None else found[name] - allowed
    assert {name: extra for name, extra in found.items() if extra} == {}


def test_what_is_allowed_exists_and_has_a_reason():
    assert ALLOWED.keys() <= {path.as_posix() for path in SOURCES}
    assert all(reason for _, reason in ALLOWED.values())


@pytest.mark.parametrize(
    "source",
    [
        'X = "sum"',
        'X = frozenset("sum".split())',
        'X = ("sum "\n"sum").split()',
        'if op.name == "sum": pass',
        'match name:\n    case "sum": pass',
        'X = {"sum": 1}',
    ],
)
def test_a_name_is_seen_wherever_it_stands(source):
    assert names_in(source) == {"sum"}


@pytest.mark.parametrize("source", ['"""sum"""', 'X = "the sum of all"', "sum = 1", 'X = "sums"'])
def test_prose_and_variables_are_no_names(source):
    assert names_in(source) == set()
