"""The tables of the reference, from the docstrings: ``python docs/reference.py`` writes them.

The pages in ``docs/api/`` say with a comment which names stand there, ``<!-- api: package -->`` or
``<!-- api: package modules -->``; the table below it is made here, a line a name, so that the
reference reads wherever Markdown does. The site (``docs/conf.py``) puts the whole docstrings there.
The page of NumPy's functions, ``docs/numpy.md``, is made from the tables of what is recorded.
"""

from __future__ import annotations

import inspect
import pydoc
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tapegraph.__main__ import HEADER, function_rows, names_of_numpy, printed_table
from tapegraph.lowering import GAPS
from tapegraph.recording import numpy_functions

__all__ = ["EXPERIMENTAL", "TABLE", "numpy_page", "public", "written"]

PAGES = Path(__file__).parent / "api"
_STABILITY = (PAGES.parent / "stability.md").read_text().split("<!-- experimental -->")[1]
EXPERIMENTAL = re.findall(r"`(tg\.[\w.]+)`", _STABILITY.partition("\n## ")[0])
TABLE = re.compile(r"^<!-- (api|data): (\S+) ?(\S*) -->\n\n((?:\|.*\n)*)", re.MULTILINE)


def public(package: str, modules: str = "") -> dict[str, Any]:
    """Return a package's public functions and classes by name, all or those from some modules."""
    owner: Any = pydoc.locate(package)  # `tapegraph.special` is no module of that name
    found = {name: getattr(owner, name) for name in sorted(owner.__all__, key=str.lower)}
    return {
        name: value
        for name, value in found.items()
        if callable(value) and f"{value.__module__}.".startswith(f"{modules or 'tapegraph'}.")
    }


def written(text: str) -> str:
    """Return a page with its tables made anew."""
    return TABLE.sub(lambda m: m[0] if m[1] == "data" else _table(m[2], m[3]), text)


def _table(package: str, modules: str) -> str:
    prefix = package.replace("tapegraph", "tg") + "."
    rows = ["| name | what it is |", "|---|---|"]
    for name, value in public(package, modules).items():
        rows.append(_row(prefix + name, value, value.__name__ if value.__name__ != name else ""))
        if isinstance(value, type) and not issubclass(value, Exception):
            rows += [_row(f"{name}.{member}", its) for member, its in _members(value)]
    marker = f"<!-- api: {package}{modules and ' ' + modules} -->"
    return "\n".join([marker, "", *rows, ""])


def _row(name: str, value: Any, another: str = "") -> str:
    text = f"Another name of `{another}`." if another else _sentence(inspect.getdoc(value) or "")
    text = f"*Experimental.* {text}" if name in EXPERIMENTAL else text
    return f"| `{name}{_signature(value)}` | {text} |"


def _sentence(doc: str) -> str:
    """Return the first sentence, as one line that may stand in a table."""
    paragraph = " ".join(doc.partition("\n\n")[0].split())
    return re.split(r"(?<=\w[.)`])(?<!e\.g\.) (?=[A-Z`])", paragraph)[0].replace("|", r"&#124;")


def _signature(value: Any) -> str:
    """Return the parameters, without their types, of what is called."""
    if not callable(value) or (isinstance(value, type) and issubclass(value, Exception)):
        return ""
    parameters = inspect.signature(value).parameters.values()
    # `others` are keywords of other libraries, which raise.
    bare = [p.replace(annotation=p.empty) for p in parameters if p.name != "others"]
    return re.sub(r"<class '(.+?)'>", r"\1", str(inspect.Signature(bare)))


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield a class's own methods and properties, without the operations, which have their rows."""
    for name, value in inspect.getmembers(cls):
        classes = (c for c in cls.__mro__ if c.__module__ != "tapegraph.recording.node")
        defined = [c for c in classes if name in vars(c)]
        own = defined and all(c is cls or c.__name__.startswith("_") for c in defined)
        operation = (getattr(value, "__module__", None) or "").startswith("tapegraph.ops")
        described = isinstance(value, property) or inspect.isroutine(value)
        if own and described and not operation and name[0] != "_":
            bound = inspect.isfunction(inspect.getattr_static(cls, name))
            yield name, value.__get__(cls) if bound else value


_NUMPY = """\
# Which NumPy functions differentiate

Call NumPy's functions on tensors as on arrays: they run eagerly, are recorded, and differentiate.
Here is every one that does, and the engine that runs its gradient: *both* is TensorFlow or native,
as you choose; a tape that holds an operation without lowering runs *native*. Typed code should call
`tg.*`, as NumPy's stubs know arrays alone.

This page is written by `python docs/reference.py`, here with NumPy {version}.

{functions}

## Methods of ufuncs

`outer` works for each differentiable ufunc of two arrays. These are the functions beside them:

{methods}

## Plain results

These carry no gradient: on tensors they give plain arrays, indices and truth values.

{plain}.

## Native operations, and why

{reasons}

## Nothing is lost in silence

Any other NumPy function of a tensor that needs a gradient raises a `TypeError` that names it; of
constants it gives plain arrays. Compute without a gradient with `tensor.detach().numpy()`, or
register a rule for it with `tg.defop`. Arrays made of tensors, `out=` and assignments to elements
are errors that say what to write instead: see
[what is recorded, and what is refused](recording.md)."""


def numpy_page() -> str:
    """Return the page "Which NumPy functions differentiate"."""
    names = names_of_numpy()
    methods = [
        (f"`{names[called][0]}.{method}`", f"`{names[function][0]}`")
        for (called, method), function in numpy_functions.METHODS.items()
        if function in numpy_functions.COUNTERPARTS
    ]
    plain = sorted(names[f][0] for f in numpy_functions.PLAIN if f in names)
    return _NUMPY.format(
        version=".".join(np.__version__.split(".")[:2]),
        functions=printed_table([HEADER, *function_rows()], markdown=True),
        methods=printed_table([("method", "is"), *methods], markdown=True),
        plain=", ".join(f"`{name}`" for name in plain),
        reasons="\n".join(f"- `{op}` {why}." for op, why in sorted(GAPS.items())),
    )


if __name__ == "__main__":
    (PAGES.parent / "numpy.md").write_text(numpy_page() + "\n")
    for page in sorted(PAGES.glob("*.md")):
        page.write_text(written(page.read_text()))
