"""The client check on clients of our own: what needs no package index."""

from __future__ import annotations

import subprocess
import sys
import tarfile

import pytest

from tests.clients import __main__ as command
from tests.clients import environment
from tests.clients.runs import CHECKOUT, Comparison, compare, run
from tests.clients.suites import CLIENTS, Client

SUITE = """
import autograd.numpy as np
from autograd import grad
from autograd.scipy.special import beta
import pytest

def test_passes():
    assert grad(np.sin)(0.0) == 1.0

def test_fails():
    assert grad(np.sin)(0.0) == 2.0

@pytest.mark.skip(reason="never")
def test_is_skipped():
    pass
"""


@pytest.fixture
def suite(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_client.py").write_text(SUITE)
    return tmp_path


def test_the_drop_in_is_what_autograd_names(suite):
    said = []
    client = Client("ours", "1")
    found = run(client, "tapegraph.autograd", sys.executable, suite, said.append, 300.0)
    outcomes = {test.rpartition("::")[2]: outcome for test, outcome in found["tests"].items()}
    assert outcomes["test_passes"] == ["passed", ""]
    assert outcomes["test_fails"][0] == "failed" and "2.0" in outcomes["test_fails"][1]
    assert outcomes["test_is_skipped"][0] == "skipped"
    assert found["entries"] > 0 and found["complex"] == []
    assert "1 of 3 pass" in said[-1]


@pytest.mark.thorough
def test_a_suite_that_records_nothing_proves_nothing(suite):
    (suite / "tests" / "test_client.py").write_text("import autograd\ndef test(): pass\n")
    with pytest.raises(RuntimeError, match="nothing was recorded"):
        run(Client("ours", "1"), "tapegraph.autograd", sys.executable, suite, print, 300.0)
    (suite / "tests" / "test_client.py").write_text("def test(): pass\n")
    with pytest.raises(RuntimeError, match="autograd was not imported"):
        run(Client("ours", "1"), "tapegraph.autograd", sys.executable, suite, print, 300.0)


@pytest.mark.thorough
def test_both_libraries_side_by_side(suite):
    pytest.importorskip("autograd")
    pytest.importorskip("scipy")
    complex_one = "\ndef test_complex():\n    grad(lambda x: np.real(x * 1j))(1.0 + 0.0j)\n"
    with (suite / "tests" / "test_client.py").open("a") as file:
        file.write(complex_one)
    found = compare(Client("ours", "1"), sys.executable, suite, lambda text: None, 300.0)
    names = [f"tests/test_client.py::test_{name}" for name in ("passes", "complex")]
    assert found.passing == 2 and found.wanted == names and found.complex_ones == names[1:]
    assert found.failures == {} and found.percent == 100.0


def test_the_table():
    client = CLIENTS[0]
    start = "tests/test_linalg.py::test_pinv"
    wanted = ["a", "b", "c", start]
    found = Comparison(client, 5, ["z"], wanted, {start: "no _dot", "b": "why"}, 7)
    assert command.table([found]).splitlines()[-1] == "| autograd 1.9.1 | 5 | 1 | 2 | 50.0 |"
    told = command.notes([found], {"numpy": "2.4", "scipy": "1.17"})
    assert "- autograd, `test_pinv`: " in told and "NumPy 2.4, SciPy 1.17" in told
    assert command.surprising(found) == ["autograd: b fails: why"]
    passing = found._replace(failures={})
    assert [start in line for line in command.surprising(passing)] == [True]
    assert "autograd: b\n    why" in command.failures([found])


def test_the_page_has_a_place_for_the_table(monkeypatch, tmp_path):
    page = command.PAGE.read_text(encoding="utf-8")
    monkeypatch.setattr(command, "PAGE", tmp_path / "page.md")
    command.PAGE.write_text(page, encoding="utf-8")
    command.write("| new |")
    written = command.PAGE.read_text(encoding="utf-8")
    before, after = page.partition(command.BEGIN)[0], page.partition(command.END)[2]
    assert written == f"{before}{command.BEGIN}\n\n| new |\n\n{command.END}{after}"
    command.PAGE.write_text("nothing", encoding="utf-8")
    with pytest.raises(RuntimeError, match="no place"):
        command.write("| new |")


def test_tests_are_unpacked_and_stay_in_their_folder(tmp_path):
    (tmp_path / "test_one.py").write_text("1")
    for name, inside in (("good", "p-1/tests/test_one.py"), ("bad", "p-1/tests/../../x.py")):
        with tarfile.open(tmp_path / f"{name}.tar.gz", "w:gz") as archive:
            archive.add(tmp_path / "test_one.py", inside)
    environment._unpack_tests(tmp_path / "good.tar.gz", tmp_path / "good")
    assert (tmp_path / "good" / "tests" / "test_one.py").read_text() == "1"
    with pytest.raises(RuntimeError, match="leave its folder"):
        environment._unpack_tests(tmp_path / "bad.tar.gz", tmp_path / "bad")


def test_help_says_what_it_does():
    call = [sys.executable, "-m", "tests.clients", "--help"]
    told = subprocess.run(call, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    for word in ("--cache", "--write", "--failures", "--only", "complex", "status 1"):
        assert word in told
