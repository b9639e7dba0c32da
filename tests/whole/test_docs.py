"""The documentation is true: its links and names lead somewhere, its parity table is today's."""

import importlib.util
import re
import runpy
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path

import pytest

import tapegraph as tg
from tests import parity
from tests.cases import CASES

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
RENEW = "run: python -m tests.parity --markdown"

needs_tensorflow = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="needs TensorFlow"
)


def test_the_operation_that_contributing_shows_is_all_there_is_of_it():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| `([\w/]+\.py)` \| (.+) \| \d \|$", text, re.MULTILINE)
    assert len(rows) == 5
    for file, what in rows:
        code = (ROOT / file).read_text()
        for line in re.findall(r"`([^`]+)`", what):
            if line != "__all__":
                assert line in code, f"{line} in {file}"
    row = '"cbrt": by_slopes("cbrt", _cbrt),'
    assert row in text and row in (ROOT / "lowering/rows/elementwise.py").read_text()


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def missing(pattern: str, exists: Callable[[Path, str], bool]) -> list[tuple[str, str]]:
    """What the pages name by a pattern and is not there, by page."""
    found = [
        (page, name)
        for page in (ROOT / "README.md", *PAGES)
        for name in sorted(set(re.findall(pattern, page.read_text())))
    ]
    assert len(found) > 20
    return [(page.name, name) for page, name in found if not exists(page, name)]


def leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    return target.exists() and (not anchor or anchor in anchors(target))


def is_public(page: Path, path: str) -> bool:
    try:
        attrgetter(path[1:])(tg)
    except AttributeError:
        return False
    return True


def test_links_lead_somewhere():
    assert missing(r"\]\(([^):]+)\)", leads_somewhere) == []


def test_names_are_public():
    assert missing(r"\btg((?:\.\w+)+)", is_public) == []


def test_files_that_are_named_exist():
    named = r"`([a-z]+/[\w/]*\w\.\w+)`"
    assert missing(named, lambda page, path: (ROOT / path).exists()) == []


def test_every_page_is_in_the_index():
    index, reference = ((ROOT / "docs" / page).read_text() for page in ("index.md", "api.md"))
    # The site takes four pages from the repository's root: what stands for them only links there.
    stubs = {"overview.md": "README.md", "contributing.md": "CONTRIBUTING.md"}
    stubs |= {"changes.md": "CHANGELOG.md", "security.md": "SECURITY.md"}
    names = [page.relative_to(ROOT / "docs").as_posix() for page in PAGES]
    names = [re.sub(r"^(tutorial/.+)\.md$", r"\1.ipynb", name) for name in names]
    links = {name: f"]({name})" for name in names if name != "index.md"}
    links |= {stub: f"](../{page})" for stub, page in stubs.items()}
    for name, link in links.items():
        assert link in (reference if name.startswith("api/") else index)
        assert name not in stubs or link in (ROOT / "docs" / name).read_text()


def test_the_reference_is_made_from_the_docstrings():
    written = runpy.run_path(str(ROOT / "docs" / "reference.py"))["written"]
    pages = {page.name: page.read_text() for page in (ROOT / "docs" / "api").glob("*.md")}
    stale = [name for name, text in pages.items() if written(text) != text]
    assert stale == [], "run: python docs/reference.py"
    listed = set(re.findall(r"^\| `tg\.([\w.]+)", "".join(pages.values()), re.MULTILINE))
    functions = {name for name in tg.__all__ if callable(getattr(tg, name))}
    assert functions <= listed and "testing.check_gradients" in listed
    linked = (ROOT / "docs" / "api.md").read_text()
    assert [name for name in pages if f"](api/{name})" not in linked] == []


def test_the_version_is_the_same_everywhere():
    versions = {
        "pyproject.toml": r'^version = "(.+)"$',
        "CITATION.cff": r"^version: (.+)$",
        "CHANGELOG.md": r"^## \[(.+?)\]",
    }
    found = {
        name: re.search(pattern, (ROOT / name).read_text(), re.MULTILINE)[1]
        for name, pattern in versions.items()
    }
    assert found == dict.fromkeys(versions, tg.__version__)


def test_the_reference_marks_what_is_experimental():
    experimental = runpy.run_path(str(ROOT / "docs" / "reference.py"))["EXPERIMENTAL"]
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))
    marked = re.findall(r"^\| `(tg\.[\w.]+)[^|]*\| \*Experimental", pages, re.MULTILINE)
    assert sorted(experimental) == sorted(marked) and len(set(marked)) > 10


def test_the_engines_page_names_every_gap():
    engines = (ROOT / "docs" / "engines.md").read_text()
    assert all(f"`{op}`" in engines for op in tg.lowering.GAPS)


def table() -> dict[tuple[str, str], dict[str, str]]:
    """The rows of docs/parity.md by operation and dtype, each as a dict by column."""
    page = (ROOT / "docs" / "parity.md").read_text()
    lines = [line for line in page.splitlines() if line.startswith("|")]
    header, _, *rows = ([cell.strip() for cell in line[1:-1].split("|")] for line in lines)
    assert tuple(header) == parity.HEADER
    named = [dict(zip(header, row, strict=True)) for row in rows]
    return {(row["op"], row["dtype"]): row for row in named}


def test_parity_table_holds_every_operation_and_case():
    ops = [case.op for case in CASES]
    expected = {(op, dtype): ops.count(op) for op in ops for dtype in ("float64", "float32")}
    assert {key: int(row["cases"]) for key, row in table().items()} == expected, RENEW
    assert {row["result"] for row in table().values()} == {"ok"}


def every_operation():
    """Operations of few cases; the rest with --thorough."""
    for op in sorted({case.op for case in CASES}):
        quick = op in ("gelu", "tensor_slice", "mse_loss")
        yield op if quick else pytest.param(op, marks=pytest.mark.thorough)


@needs_tensorflow
@pytest.mark.parametrize("op", [*every_operation()])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_parity_table_shows_what_the_engines_do(op, dtype):
    row = parity.Row(op, dtype)
    for case in CASES:
        if case.op == op:
            parity.compare(case, row)
    now = dict(zip(parity.HEADER, row.cells(), strict=True))
    for column in ("nodes", "engine", "why", "result"):
        assert table()[op, dtype][column] == now[column], RENEW


@needs_tensorflow
def test_the_parity_command_prints_the_table(capsys):
    assert parity.main(["--op", "sin", "--markdown"]) == 0
    header, _, *rows = capsys.readouterr().out.splitlines()
    assert [cell.strip() for cell in header[1:-1].split("|")] == [*parity.HEADER]
    assert sum(row.startswith("| sin ") for row in rows) == 2 and rows[-1].endswith(
        "agree in both dtypes."
    )
    assert parity.main(["--op", "no_such_operation"]) == 2
    assert "no cases for no_such_operation" in capsys.readouterr().err
