"""The tutorial runs from top to bottom, prints what its notebooks hold, and fits a screen."""

import ast
import contextlib
import contextvars
import io
import json
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial"
TEXTS = sorted(TUTORIAL.glob("*.md"))
SCREEN = 45  # lines

FRONT = """\
---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
    format_version: 0.13
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

# """

# A cell, and before it its tag: `slow`, or `varies` if it prints times or what is installed.
CELL = re.compile(
    r"^```{code-cell} python\n(?::tags: \[(slow|varies)\]\n\n)?(.*?)^```\n",
    re.DOTALL | re.MULTILINE,
)
# The cell and line of an operation, as Jupyter names them and as `run` does.
PLACE = re.compile(r"In\[\d+\]|0\d-[-\w]+\.py")
NUMBER = re.compile(r"\d+(?:\.\d*)?(?:e[-+]?\d+)?")


def test_there_are_six_in_order():
    assert [page.name[:3] for page in TEXTS] == ["01-", "02-", "03-", "04-", "05-", "06-"]


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.stem)
def test_jupyter_reads_it(page):
    text = page.read_text()
    assert text.startswith(FRONT)
    assert len(CELL.findall(text)) == text.count("```{code-cell}") == text.count("{code-cell}")
    assert text.count("\n") <= 240


def cells(page: Path) -> list[dict]:
    """The cells of a page's notebook."""
    return json.loads(page.with_suffix(".ipynb").read_text())["cells"]


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.stem)
def test_notebooks_are_made_from_their_texts(page):
    first, *rest = CELL.split(page.read_text()[len(FRONT) - len("# ") :])
    expected = [("markdown", [], first.strip())]
    for tag, code, text in zip(*[iter(rest)] * 3, strict=True):
        expected.append(("code", [tag] if tag else [], code.rstrip("\n")))
        expected += [("markdown", [], text.strip())] * bool(text.strip())
    found = [
        (cell["cell_type"], cell["metadata"].get("tags", []), "".join(cell["source"]))
        for cell in cells(page)
    ]
    assert found == expected, "run: python docs/tutorial/execute.py"


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.stem)
def test_notebooks_have_run_and_tell_nothing_of_the_machine(page):
    code = [cell for cell in cells(page) if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]
    outputs = [out for cell in code for out in cell["outputs"]]
    assert outputs and not {"error", "stderr"} & {
        out.get("name", out["output_type"]) for out in outputs
    }
    assert not re.search(r"/(tmp|home|root|work|usr)/|\d\d:\d\d:\d\d", json.dumps(outputs))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.stem)
def test_cells_print_what_notebooks_hold(page, monkeypatch, tmp_path, request):
    text = page.read_text()
    for package in ("matplotlib", "sklearn"):
        if re.search(rf"^from {package}", text, re.MULTILINE):
            pytest.importorskip(package, reason="needs the extra examples")
    if 'run("info", "--load")' in text and request.config.getoption("thorough"):
        pytest.importorskip("tensorflow")  # whose versions it prints
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.delitem(sys.modules, "this", raising=False)  # which prints when it is imported
    monkeypatch.chdir(tmp_path)
    contextvars.copy_context().run(run, page, request.config.getoption("thorough"))


def run(page: Path, thorough: bool) -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    stored = [cell["outputs"] for cell in cells(page) if cell["cell_type"] == "code"]
    whole = True  # so far
    for number, (tag, code) in enumerate(CELL.findall(page.read_text())):
        if tag == "slow" and not thorough:
            continue
        if not thorough and "EPOCHS = " in code:
            code, whole = re.sub(r"^EPOCHS = \d+$", "EPOCHS = 1", code, flags=re.MULTILINE), False
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), undrawn():
            value = run_cell(code, f"{page.stem}-{number}.py", namespace)
        found = {"stdout": printed.getvalue(), **bundle(value)}
        for text in (found["stdout"], found.get("text/plain", "")):
            assert text.count("\n") < SCREEN and max(map(len, text.split("\n"))) <= 200, text
        if whole and not tag:
            assert_alike(found, stored[number])


def assert_alike(found: dict[str, str], outputs: list[dict]) -> None:
    """Compare what a cell printed and returned with what its notebook holds, numbers to 2 %."""
    stored = {"stdout": ""}
    for out in outputs:
        if out["output_type"] == "stream":
            stored["stdout"] += "".join(out["text"])
        elif out["output_type"] == "execute_result":
            stored |= {kind: "".join(text) for kind, text in out["data"].items()}
    for kind, text in stored.items():
        ours, theirs = (PLACE.sub("cell", x) for x in (found[kind], text))
        assert NUMBER.sub("0", ours) == NUMBER.sub("0", theirs), f"{kind}: {found[kind]}\n{text}"
        numbers = [np.array(NUMBER.findall(x), float) for x in (ours, theirs)]
        np.testing.assert_allclose(*numbers, rtol=0.02, atol=0.02, err_msg=found[kind])


def run_cell(code: str, name: str, namespace: dict[str, object]) -> object:
    """Run a cell and return the value of its last line, as Jupyter would show it."""
    body = ast.parse(code, name).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), name, "exec"), namespace)
    return eval(compile(ast.Expression(last.value), name, "eval"), namespace) if last else None


def bundle(value: object) -> dict[str, str]:
    """What Jupyter shows of a value, by the kind of text."""
    if value is None:
        return {}
    if hasattr(value, "_repr_mimebundle_"):
        found = value._repr_mimebundle_()
        return found[0] if isinstance(found, tuple) else found
    html = {"text/html": value._repr_html_()} if hasattr(value, "_repr_html_") else {}
    return {"text/plain": repr(value), **html}


@contextlib.contextmanager
def undrawn():
    """Close what a cell draws."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "FigureCanvasAgg is non-interactive")
        yield
    if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
        pyplot.close("all")
