"""The mutation check works: its faults apply to today's code, and one is seen to be killed."""

from __future__ import annotations

import ast
import functools
import shlex
import textwrap

import pytest
from mutations.__main__ import label, main
from mutations.check import ROOT, Verdict, _definitions, applied, copied, judge, located
from mutations.faults import FAULTS, Fault

KNOWN = next(f for f in FAULTS if label(f) == "vjp/sub-wrong-sign")


@functools.lru_cache
def meaning(text: str) -> str:
    return ast.dump(ast.parse(textwrap.dedent(text)))


def statement(text: str, start: int, end: int) -> tuple[int, int]:
    """Where the innermost statement around a place begins and ends; of none, the whole file."""
    around = [
        (first, last)
        for spans in _definitions(text).values()
        for first, last in spans
        if first <= start and end <= last
    ]
    return min(around, key=lambda span: span[1] - span[0], default=(0, len(text)))


def applies(fault: Fault) -> bool:
    tests = [word for word in shlex.split(fault.likely) if word.startswith("tests/")]
    try:
        path, start, end = located(fault, ROOT)
        text = path.read_text()
        first, last = statement(text, start, end)
        faulty = text[first:start] + fault.new.strip() + text[end:last]
        changed = meaning(faulty) != meaning(text[first:last])
    except (SyntaxError, ValueError):
        return False
    return changed and tests != [] and all((ROOT / file).exists() for file in tests)


def test_every_fault_applies():
    assert [label(f) for f in FAULTS if not applies(f)] == [], "renew the entries"


def test_names_are_unique():
    assert len({label(f) for f in FAULTS}) == len(FAULTS)


def test_a_known_fault_is_killed_by_a_test_that_is_named(tmp_path):
    checkout = copied(tmp_path)
    file, _, _ = located(KNOWN, checkout)
    before = file.read_bytes()
    verdict = judge(KNOWN, checkout)
    assert verdict.killed_by.startswith("tests/ops/test_ops.py::test_case_keeps_every_promise[sub]")
    assert verdict.as_expected
    assert file.read_bytes() == before


def fault(within: str, old: str, new: str = "c") -> Fault:
    return Fault("kind", "name", within, old, new, "tests/ops/test_ops.py")


def test_a_fault_whose_text_has_gone_is_named(tmp_path):
    (tmp_path / "file.py").write_text("a = 1\na = 1\n")
    for old, count in (("b", 0), ("a = 1", 2)):
        with pytest.raises(ValueError, match=f"kind/name: its old text stands {count} times"):
            with applied(fault("file.py:", old), tmp_path):
                pass


CODE = """
def other(x):
    return x + 1

class Holder:
    def found(self, x):
        return sum(
            x + 1,
            start=2,
        )
"""


def test_a_fault_is_found_in_its_function_wherever_that_stands(tmp_path):
    (tmp_path / "tapegraph" / "room").mkdir(parents=True)
    moved = tmp_path / "tapegraph" / "room" / "moved.py"
    moved.write_text(CODE)
    seeded = fault("tapegraph/before.py:Holder.found", "sum(x + 1, start=2)", "sum(x - 1, start=2)")
    with applied(seeded, tmp_path):
        assert "return sum(x - 1, start=2)" in moved.read_text()
        assert "return x + 1" in moved.read_text()
    assert moved.read_text() == CODE


@pytest.mark.parametrize(
    ("survives", "killed_by", "expected"),
    [("", "a test", True), ("", None, False), ("why", None, True), ("why", "a test", False)],
)
def test_what_survives_has_a_reason_and_what_has_a_reason_survives(survives, killed_by, expected):
    fault = Fault("kind", "name", "file.py", "a", "b", "tests", survives=survives)
    assert Verdict(fault, killed_by, 1.0).as_expected is expected


def test_the_command_lists_and_chooses(capsys):
    assert main(["--list", "--only", "value/"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert listed and all(text.startswith("value/") for text in listed)
    with pytest.raises(SystemExit):
        main(["--only", "no such fault"])
    assert "no fault is called like" in capsys.readouterr().err
