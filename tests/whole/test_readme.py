"""The README and the pages are true: their code runs from top to bottom and prints what it says."""

import contextlib
import contextvars
import importlib.util
import io
import re
from pathlib import Path

import pytest

from tapegraph.engines import auto, registry
from tests.quick import in_one

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAGES = {
    page.name: page.read_text() for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
}
WITH_CODE = sorted(name for name, text in PAGES.items() if "```python" in text)

# The package a python block needs, if it says so, and whether it sets up its process; the block;
# the text block after it, if any.
BLOCK = re.compile(
    r"^(?:<!-- needs (\w+)(, in a process of its own)? -->\n)?"
    r"```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)


@pytest.mark.parametrize("page", WITH_CODE)
def test_code_prints_what_is_shown(page, monkeypatch, tmp_path, run_python, thorough):
    monkeypatch.chdir(tmp_path)
    # A context of its own, and engines of its own: what a page sets, no other test sees.
    monkeypatch.setattr(registry, "_loaders", dict(registry._loaders))
    monkeypatch.setattr(registry, "_loaded", dict(registry._loaded))
    monkeypatch.setattr(auto, "BACKWARDS", auto.Backwards())
    contextvars.copy_context().run(run_page, page, run_python, thorough)


def run_page(page: str, run_python, thorough: bool) -> None:
    blocks = BLOCK.findall(PAGES[page])
    assert len(blocks) == PAGES[page].count("```python")
    namespace: dict[str, object] = {"__name__": "page"}
    line = 0
    for package, alone, code, shown in blocks:
        # One more TensorFlow takes seconds to import.
        later = alone and package == "tensorflow" and not thorough
        if later or (package and importlib.util.find_spec(package) is None):
            code, shown = "\n" * code.count("\n"), ""
        elif alone:
            done = run_python(code)
            assert (done.stdout, done.returncode) == (shown, 0), code + done.stderr
            code, shown = "\n" * code.count("\n"), ""
        # As if the blocks were pasted one after another into one file, tour.py.
        program = compile("\n" * line + code, page.replace(".md", ".py"), "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(program, namespace)
        assert printed.getvalue() == shown, code
        line += code.count("\n")


def test_the_tour_is_among_them():
    assert {"README.md", "tour.md", "recording.md"} <= set(WITH_CODE)


@in_one("page", WITH_CODE)
def test_blocks_that_need_a_package_say_so(page):
    blocks = BLOCK.findall(PAGES[page])
    needs = [package for package, _, code, _ in blocks if re.search("tg.lowering|parity", code)]
    assert set(needs) <= {"tensorflow"}


@pytest.mark.parametrize(("page", "lines"), [("README.md", 200), ("performance.md", 400)])
def test_pages_stay_short(page, lines):
    assert PAGES[page].count("\n") <= lines


def test_install_commands_name_real_extras():
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 reads TOML by itself")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r"pip install .*\[([\w,]+)\]", README)
    assert named
    assert set(",".join(named).split(",")) <= set(project["optional-dependencies"])
