"""The README is true: its code runs from top to bottom and prints what it says."""

import contextlib
import contextvars
import importlib.util
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()

# The package a python block needs, if it says so; the block; the text block after it, if any.
TOUR = re.compile(
    r"^(?:<!-- needs (\w+) -->\n)?```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)


def test_code_prints_what_is_shown(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    # A context of its own: what the tour sets, no other test sees.
    contextvars.copy_context().run(take_tour)


def take_tour() -> None:
    blocks = TOUR.findall(README)
    assert len(blocks) == README.count("```python") > 0
    namespace: dict[str, object] = {"__name__": "tour"}
    line = 0
    for package, code, shown in blocks:
        if package and importlib.util.find_spec(package) is None:
            code, shown = "\n" * code.count("\n"), ""
        # As if the blocks were pasted one after another into one file, tour.py.
        program = compile("\n" * line + code, "tour.py", "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(program, namespace)
        assert printed.getvalue() == shown, code
        line += code.count("\n")


def test_blocks_that_need_a_package_say_so():
    needs = [package for package, code, _ in TOUR.findall(README) if "tg.lowering" in code]
    assert needs and set(needs) == {"tensorflow"}


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\]\(([^)#:]+)\)", README))))
def test_links_lead_somewhere(path):
    assert (ROOT / path).exists()


def test_install_commands_name_real_extras():
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 reads TOML by itself")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r"pip install .*\[([\w,]+)\]", README)
    assert named
    assert set(",".join(named).split(",")) <= set(project["optional-dependencies"])
