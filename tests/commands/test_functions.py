"""The page of NumPy's functions is made from the tables, and is up to date."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

from tapegraph import __main__ as commands
from tapegraph.__main__ import main
from tapegraph.lowering import GAPS
from tapegraph.recording import numpy_functions

DOCS = Path(__file__).parents[2] / "docs"


def numpy_page() -> str:
    return runpy.run_path(str(DOCS / "reference.py"))["numpy_page"]()


def test_the_page_is_up_to_date():
    page = (DOCS / "numpy.md").read_text()
    version = ".".join(np.__version__.split(".")[:2])
    if f"with NumPy {version}." not in page:
        pytest.skip("until the page is written with this version of NumPy")
    assert page == numpy_page() + "\n", "run python docs/reference.py"


def test_the_command_prints_them(capsys):
    assert main(["functions"]) == 0
    assert "np.sin" in capsys.readouterr().out


@pytest.fixture(scope="module")
def rows():
    return commands.function_rows()


def test_every_function_of_the_table_has_a_row(rows):
    listed = " ".join(row[0] for row in rows)
    for function in numpy_functions.COUNTERPARTS:
        name = function.__name__
        if getattr(np, name, None) is function or getattr(np.linalg, name, None) is function:
            assert f"{name}`" in listed


def test_native_operations_are_found_in_the_code(rows, monkeypatch):
    found = {row[0]: row[2] for row in rows}
    assert (found["`np.sin`"], found["`np.linalg.eigh`"]) == ("both", "native with eigh")
    assert commands.native_operations(numpy_functions.COUNTERPARTS[np.matmul]) == set()
    for name in ("sin", "matmul", "batch_matmul"):
        monkeypatch.setitem(GAPS, name, "is a test")
    found = {row[0]: row[2] for row in commands.function_rows()}
    assert (found["`np.sin`"], found["`np.cos`"]) == ("native with sin", "both")
    assert found["`np.matmul`"] == "native with batch_matmul, matmul"
    assert "- `sin` is a test." in numpy_page()
