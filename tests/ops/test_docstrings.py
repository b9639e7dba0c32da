"""`help` shows whole docstrings, and no sentence of theirs is written in several places."""

from __future__ import annotations

import ast
import collections
import inspect
import operator
import re
from pathlib import Path

import pytest

import tapegraph as tg
from tapegraph import docstrings
from tapegraph.docstrings import ERROR_OF, PARAMETERS, RAISES, RESULT_OF, RETURNS, USUAL
from tapegraph.ops import FAMILIES
from tapegraph.typed import Axes

PACKAGE = Path(tg.__file__).parent
ORDER = ("Parameters", "Returns", "Raises", "Notes", "Examples")
NAMES = (
    *tg.__all__,
    *(f"special.{name}" for name in tg.special.__all__),
    "testing.check_gradients",
    "testing.check_parity",
)
FUNCTIONS = {name: operator.attrgetter(name)(tg) for name in NAMES}
FUNCTIONS = {name: f for name, f in FUNCTIONS.items() if inspect.isfunction(f)}


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


def source_docstrings() -> dict[str, str]:
    """Every docstring of a function of the package, as it stands in the source."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and ast.get_docstring(node):
                found[f"{path.relative_to(PACKAGE)}:{node.lineno}"] = ast.get_docstring(node)
    return found


# ------------------------------------------------------------------ what users read


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_has_a_whole_docstring(name):
    doc, signature = inspect.getdoc(FUNCTIONS[name]), inspect.signature(FUNCTIONS[name])
    titles = re.findall(r"^(\w+)\n---+$", doc, re.MULTILINE)
    assert titles == [title for title in ORDER if title in titles], "once each, and in order"
    whole = sections(doc)
    assert whole[""].strip(), "a summary"

    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    wanted = [stars.get(p.kind, "") + p.name for p in signature.parameters.values()]
    parameters = entries(whole.get("Parameters", ""))
    assert [part for names, _, _ in parameters for part in names.split(", ")] == wanted
    assert all(kind or text for _, kind, text in parameters)

    assert ("Returns" in whole) == (signature.return_annotation != "None")
    raises = entries(whole.get("Raises", ""))
    assert all(error.endswith("Error") and text for error, _, text in raises)

    assert whole["Examples"].count(">>> import tapegraph as tg\n") == 1
    assert re.search(r"^>>> .*\btg\.", whole["Examples"], re.MULTILINE)


# ------------------------------------------------------------------ what authors write


def test_a_sentence_of_the_tables_is_nowhere_else():
    sentences = {text for rows in (PARAMETERS, RETURNS, RAISES) for _, text in rows.values()}
    any_of_them = re.compile(rf"(?<![\w`])({'|'.join(map(re.escape, sorted(sentences)))})")
    written = {where: " ".join(doc.split()) for where, doc in source_docstrings().items()}
    found = {where: any_of_them.findall(doc) for where, doc in written.items()}
    assert {where: twice for where, twice in found.items() if twice} == {}


def test_no_entry_stands_in_three_docstrings():
    counted = collections.Counter()
    for where, doc in source_docstrings().items():
        if where.startswith("ops/"):
            for title in ("Parameters", "Returns", "Raises"):
                found = entries(sections(doc).get(title, "").partition("\n>>> ")[0])
                counted.update((title, text) for _, _, text in found if text)
    assert len(counted) > 50
    assert [entry for entry, n in counted.items() if n > 2] == []


def test_every_kind_is_used_and_exists():
    named = {kind for rows in (USUAL, RESULT_OF, ERROR_OF) for kind in rows.values()}
    for doc in source_docstrings().values():
        named.update(line.partition(" : ")[2] or line for line in doc.splitlines())
    public = [inspect.signature(f) for f in FUNCTIONS.values()]
    names = {name for signature in public for name in signature.parameters}
    names |= {signature.return_annotation for signature in public}
    assert {*PARAMETERS, *RETURNS, *RAISES} <= named | names
    assert {*USUAL.values(), *ERROR_OF} <= {*PARAMETERS}
    assert {*RESULT_OF.values()} <= {*RETURNS} and {*ERROR_OF.values()} <= {*RAISES}
    families = {name.partition(".")[0] for name in USUAL if ": " not in name} - names
    assert families <= {*FAMILIES}


# ------------------------------------------------------------------ how they are put together


def made(doc: str, *, module: str = "tapegraph.ops.elementwise") -> str:
    def function(x, y: int = 0, *rest, axis: Axes = None):
        pass

    function.__doc__, function.__module__ = doc, module
    return docstrings.completed(function)


def test_what_is_missing_is_added():
    assert made(
        """Say what.

        And how.

        >>> import math
        >>> tg.exp(
        ...     0.0
        ... )
        """
    ).splitlines() == [
        *("Say what.", "", "And how.", ""),
        *("Parameters", "----------"),
        *("x : Tensor, array_like or number", "    Any shape, float32 or float64."),
        "y, *rest",
        *("axis : int or tuple of int, optional", "    The axes to reduce; all where not given."),
        *("", "Returns", "-------", "Tensor", "    Of ``x``'s shape and dtype."),
        *("", "Raises", "------"),
        *("ValueError", "    An axis is out of range or repeated."),
        *("", "Examples", "--------"),
        *(">>> import math", ">>> import tapegraph as tg", ">>> tg.exp(", "...     0.0", "... )"),
    ]


def test_what_is_written_wins():
    doc = made(
        """Say what.

        Parameters
        ----------
        x : int
            A number.
        y, *rest : angles
        axis
            The axes,
            all of them.

        Returns
        -------
        list
            All.

        Raises
        ------
        ValueError
            It is Friday.

        Notes
        -----
        One.

        Two.
        """
    )
    assert entries(sections(doc)["Parameters"]) == [
        ("x", "int", "A number."),
        ("y, *rest", *PARAMETERS["angles"]),
        ("axis", "int or tuple of int, optional", "The axes, all of them."),
    ]
    assert entries(sections(doc)["Returns"]) == [("list", "", "All.")]
    assert entries(sections(doc)["Raises"]) == [("ValueError", "", "It is Friday.")]
    assert sections(doc)["Notes"] == "One.\n\nTwo."


def test_an_error_of_another_class_stays_beside_the_usual_one():
    doc = made("Say what.\n\nRaises\n------\nTypeError\n    It is Friday.\nno SciPy")
    assert [error for error, _, _ in entries(sections(doc)["Raises"])] == [
        "ImportError",
        "TypeError",
        "ValueError",
    ]


def test_families_differ():
    doc = made("Say what.", module="tapegraph.ops.shape")
    assert entries(sections(doc)["Parameters"])[0] == ("x", *PARAMETERS["an array"])


def test_without_docstrings_the_library_works(run_python):
    done = run_python(
        "import tapegraph as tg; print(tg.exp.__doc__, tg.sum.__doc__, tg.exp(0.0).item())",
        PYTHONOPTIMIZE="2",
    )
    assert done.stdout == "None None 1.0\n", done.stderr
