"""Docstrings, which stand in the source as an editor shows them, say what is needed."""

from __future__ import annotations

import inspect
import operator
import re

import numpy as np

import tapegraph as tg
from tapegraph.recording.numpy_functions import COUNTERPARTS

ORDER = ("param", "returns", "raises")
NAMES = (
    *tg.__all__,
    *(f"special.{name}" for name in tg.special.__all__),
    "testing.check_gradients",
    "testing.check_parity",
)
FUNCTIONS = {name: operator.attrgetter(name)(tg) for name in NAMES}
FUNCTIONS = {name: f for name, f in FUNCTIONS.items() if inspect.isfunction(f)}
# Those of `special` that SciPy has not, or had not in the oldest version allowed.
OURS = {"softplus"}
OTHERWISE = {"psi": "digamma", "sigmoid": "expit"}  # SciPy's other name


def counterparts(name: str) -> list[str]:
    """What a function follows, by its full names; nothing where it is an operation of our own."""
    function, last = FUNCTIONS[name], name.rpartition(".")[2]
    if last in tg.special.__all__ or last in OTHERWISE:
        return [] if last in OURS else [f"scipy.special.{OTHERWISE.get(last, last)}"]
    names = {n for n, f in FUNCTIONS.items() if f is function} | {function.__name__}
    windows = np.lib.stride_tricks
    found = [(np, "numpy"), (np.linalg, "numpy.linalg"), (windows, windows.__name__)]
    return [
        f"{title}.{n}"
        for module, title in found
        for n in names
        if getattr(module, n, None) in COUNTERPARTS
    ]


def fields(doc: str) -> list[tuple[str, str, str]]:
    """The fields of a docstring: kind, names and text, on one line each."""
    found = re.findall(
        r"^:(param|returns|raises) ?([^:]*): ?(.*\n(?:[ ].*\n)*)", doc + "\n", re.MULTILINE
    )
    return [(kind, names, " ".join(text.split())) for kind, names, text in found]


def faults(name: str) -> list[str]:
    """What is missing from a function's docstring."""
    function = FUNCTIONS[name]
    doc = inspect.getdoc(function)
    first = doc.partition("\n:")[0].partition("\n>>>")[0]
    checks = {"a sentence": re.match(r"\S.*[.]$", doc.split("\n\n")[0], re.DOTALL)}
    checks["no import that is taken for granted"] = not re.search(
        "import (numpy as np|tapegraph as tg)", doc
    )
    checks["an example"] = re.search(r"^>>> .*\btg\.", doc, re.MULTILINE)
    mirrored = counterparts(name) or re.findall(rf"`(numpy\.{name})`", first)  # of a later NumPy
    if mirrored:
        checks[f"one of {mirrored}"] = any(f"`{m}`" in first for m in mirrored)
    else:
        checks |= of_our_own(function, doc)
    return [what for what, found in checks.items() if not found]


# All but the first are refusals by an engine.
ERRORS = ("Error", "EngineDeclined", "lowering.NotLowered", "lowering.Unavailable")


def of_our_own(function, doc: str) -> dict[str, bool]:
    """What an operation without a counterpart has to say."""
    signature = inspect.signature(function)
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    # `others` are keywords of other libraries, which raise.
    named = [p for p in signature.parameters.values() if p.name != "others"]
    wanted = [stars.get(p.kind, "") + p.name for p in named]
    found = fields(doc)
    kinds = [kind for kind, _, _ in found]
    parameters = ", ".join(names for kind, names, _ in found if kind == "param")
    errors = [names for kind, names, _ in found if kind == "raises"]
    return {
        "fields in order": kinds == sorted(kinds, key=ORDER.index),
        f"the parameters {wanted}": parameters == ", ".join(wanted),
        "what each is": all(text for _, _, text in found),
        "results": ("returns" in kinds) == (signature.return_annotation != "None"),
        "errors": all(error.endswith(ERRORS) for error in errors),
    }


def test_docstrings_say_what_is_needed():
    missing = {name: faults(name) for name in FUNCTIONS}
    assert {name: what for name, what in missing.items() if what} == {}


def test_public_methods_say_what_they_do():
    classes = [kind for kind in map(vars(tg).get, tg.__all__) if inspect.isclass(kind)]
    silent = [
        f"{kind.__name__}.{name}"
        for kind in classes
        for base in kind.__mro__
        for name, member in vars(base).items()
        if inspect.isfunction(member) or isinstance(member, property)
        if not name.startswith("_") and not inspect.getdoc(getattr(kind, name))
    ]
    assert len(classes) > 10 and silent == []


def test_element_wise_functions_tell_their_derivative():
    told = re.compile("derivative|gradient|slope|constant|tensor itself")
    silent = [n for n, f in FUNCTIONS.items() if not told.search(f.__doc__)]
    family = "tapegraph.ops.elementwise"
    assert [n for n in silent if FUNCTIONS[n].__module__ == family] == []


def test_without_docstrings_the_library_works(run_python):
    done = run_python(
        "import tapegraph as tg; print(tg.exp.__doc__, tg.sum.__doc__, tg.exp(0.0).item())",
        PYTHONOPTIMIZE="2",
    )
    assert done.stdout == "None None 1.0\n", done.stderr
