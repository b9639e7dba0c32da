"""The tutorial's notebooks run from top to bottom, print what they say, and fit a screen."""

import ast
import contextlib
import contextvars
import io
import os
import re
import sys
import warnings
from pathlib import Path

import pytest

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial"
NOTEBOOKS = sorted(TUTORIAL.glob("*.md"))
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

# Whether it takes long; a cell; the block of text after it, if any, which says what it prints.
CELL = re.compile(
    r"^```{code-cell} python\n(:tags: \[slow\]\n\n)?(.*?)^```\n(?:\n```text\n(.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)


def test_there_are_six_in_order():
    assert [page.name[:3] for page in NOTEBOOKS] == ["01-", "02-", "03-", "04-", "05-", "06-"]


@pytest.mark.parametrize("page", NOTEBOOKS, ids=lambda page: page.stem)
def test_jupyter_reads_it(page):
    text = page.read_text()
    assert text.startswith(FRONT)
    assert len(CELL.findall(text)) == text.count("```{code-cell}") == text.count("{code-cell}")
    assert text.count("\n") <= 240


@pytest.mark.parametrize("page", NOTEBOOKS, ids=lambda page: page.stem)
def test_cells_print_what_is_shown(page, monkeypatch, tmp_path, request):
    text = page.read_text()
    for package in ("matplotlib", "sklearn"):
        if re.search(rf"^from {package}", text, re.MULTILINE):
            pytest.importorskip(package, reason="needs the extra examples")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.chdir(tmp_path)
    contextvars.copy_context().run(run, page, request.config.getoption("thorough"))


def run(page: Path, thorough: bool) -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    for number, (slow, code, shown) in enumerate(CELL.findall(page.read_text())):
        if slow and not thorough:
            continue
        if not thorough:
            code = re.sub(r"^EPOCHS = \d+$", "EPOCHS = 1", code, flags=re.MULTILINE)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), pictures(page, number):
            value = run_cell(code, f"{page.stem}-{number}.py", namespace)
        output = printed.getvalue()
        assert not shown or output == shown, f"{code}\n{output}"
        for text in (output, as_text(value)):
            assert text.count("\n") < SCREEN and max(map(len, text.split("\n"))) <= 200, text


def run_cell(code: str, name: str, namespace: dict[str, object]) -> object:
    """Run a cell and return the value of its last line, as Jupyter would show it."""
    body = ast.parse(code, name).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), name, "exec"), namespace)
    return eval(compile(ast.Expression(last.value), name, "eval"), namespace) if last else None


def as_text(value: object) -> str:
    if hasattr(value, "_repr_mimebundle_"):
        bundle = value._repr_mimebundle_()
        return (bundle[0] if isinstance(bundle, tuple) else bundle)["text/plain"]
    return "" if value is None else repr(value)


@contextlib.contextmanager
def pictures(page: Path, number: int):
    """Close what a cell draws; save it where TUTORIAL_PICTURES says, to be looked at."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "FigureCanvasAgg is non-interactive")
        yield
    if (pyplot := sys.modules.get("matplotlib.pyplot")) is None:
        return
    if "TUTORIAL_PICTURES" in os.environ and pyplot.get_fignums():
        pyplot.savefig(Path(os.environ["TUTORIAL_PICTURES"]) / f"{page.stem}-{number}.png", dpi=80)
    pyplot.close("all")
