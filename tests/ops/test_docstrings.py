"""Docstrings, which stand in the source as an editor shows them, say what is needed."""

from __future__ import annotations

import inspect
import operator
import re

import numpy as np

import tapegraph as tg
from tapegraph.recording.numpy_functions import COUNTERPARTS

ORDER = ("Parameters", "Returns", "Raises", "Notes", "Examples")
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
    found = [(np, "numpy"), (np.linalg, "numpy.linalg")]
    return [
        f"{title}.{n}"
        for module, title in found
        for n in names
        if getattr(module, n, None) in COUNTERPARTS
    ]


def sections(doc: str) -> dict[str, str]:
    """The sections of a docstring, by title; what stands before them under ""."""
    titles = "|".join(ORDER)
    first, *rest = re.split(rf"^({titles})\n-+\n", inspect.cleandoc(doc), flags=re.MULTILINE)
    return {"": first, **dict(zip(rest[::2], rest[1::2], strict=True))}


def entries(section: str) -> list[tuple[str, str, str]]:
    """The entries of a section: names, type and text, on one line each."""
    found = re.findall(r"^(\S.*)\n?((?:(?:[ ].*)?\n)*)", section.strip() + "\n", re.MULTILINE)
    cut = [(*head.partition(" : ")[::2], " ".join(text.split())) for head, text in found]
    return [(names, kind, text) for names, kind, text in cut]


def faults(name: str) -> list[str]:
    """What is missing from a function's docstring."""
    function = FUNCTIONS[name]
    doc = inspect.getdoc(function)
    whole = sections(doc)
    checks = {"a sentence": re.match(r"\S.*[.]$", doc.split("\n\n")[0], re.DOTALL)}
    checks["one import"] = doc.count(">>> import tapegraph as tg\n") == 1
    checks["an example"] = re.search(r"^>>> .*\btg\.", doc, re.MULTILINE)
    mirrored = counterparts(name) or re.findall(
        rf"`(numpy\.{name})`", whole[""]
    )  # of a later NumPy
    if mirrored:
        checks[f"one of {mirrored}"] = any(f"`{m}`" in whole[""] for m in mirrored)
    else:
        checks |= of_our_own(function, doc, whole)
    return [what for what, found in checks.items() if not found]


# All but the first are refusals by an engine.
ERRORS = ("Error", "EngineDeclined", "lowering.NotLowered", "lowering.Unavailable")


def of_our_own(function, doc: str, whole: dict[str, str]) -> dict[str, bool]:
    """What an operation without a counterpart has to say."""
    signature = inspect.signature(function)
    titles = re.findall(r"^(\w+)\n---+$", doc, re.MULTILINE)
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    wanted = [stars.get(p.kind, "") + p.name for p in signature.parameters.values()]
    parameters = entries(whole.get("Parameters", ""))
    raises = entries(whole.get("Raises", ""))
    return {
        "sections in order": titles == [title for title in ORDER if title in titles],
        f"the parameters {wanted}": wanted
        == [part for names, _, _ in parameters for part in names.split(", ")],
        "what each is": all(kind or text for _, kind, text in parameters),
        "results": ("Returns" in whole) == (signature.return_annotation != "None"),
        "errors": all(error.endswith(ERRORS) and text for error, _, text in raises),
        "examples": "Examples" in whole,
    }


def test_docstrings_say_what_is_needed():
    missing = {name: faults(name) for name in FUNCTIONS}
    assert {name: what for name, what in missing.items() if what} == {}


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
