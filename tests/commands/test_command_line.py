"""The command line: what each command prints, for people and for machines."""

from __future__ import annotations

import io
import json
import sys

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.__main__ import main
from tapegraph.commands import machine, styled

MODEL = """
import numpy as np
import tapegraph as tg

w = tg.param([1.0, 2.0], name="w")
step = tg.compile(lambda x: tg.sum(w * x))
step(np.ones(2))

def loss():
    return tg.sum(tg.sin(w) ** 2)

def wrong():
    return 3.0
"""


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "a_model.py"
    path.write_text(MODEL)
    return path


def printed(capsys, *arguments: str):
    """What a command prints as JSON."""
    status = main([*arguments, "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_info_for_machines_and_for_people(capsys):
    status, facts = printed(capsys, "info")
    assert status == 0
    assert facts["tapegraph"] == tg.__version__ and facts["numpy"] == np.__version__
    assert main(["info"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == machine.info() and len(lines) == len(facts)
    assert all(f"{topic:<11} {text}" in lines for topic, text in facts.items())


def test_functions_for_machines(capsys):
    status, rows = printed(capsys, "functions")
    assert status == 0
    assert {"NumPy": "np.sin", "tapegraph": "tg.sin", "records": "sin", "engine": "both"} in rows


def test_a_function_is_drawn(capsys, model):
    target = f"{model}:loss"
    assert main(["draw", target]) == 0
    assert capsys.readouterr().out.startswith("result of sum\n3 operations, 1 parameter of 2")
    path = model.parent / "loss.svg"
    assert main(["draw", target, "--out", str(path), "--theme", "dark"]) == 0
    assert capsys.readouterr().out == f"{path}\n"
    assert path.read_text().startswith("<svg") and "@media" not in path.read_text()
    status, known = printed(capsys, "draw", target)
    assert (status, known["boxes"], known["title"], known["path"]) == (0, 4, "result of sum", None)


def test_a_compiled_step_and_a_variable_are_drawn_by_name(capsys, model, monkeypatch):
    assert main(["draw", f"{model}:step"]) == 0
    assert "float64[2]" in capsys.readouterr().out
    assert main(["draw", f"{model}:w"]) == 0
    assert "w  (2,)  = [1, 2]" in capsys.readouterr().out
    monkeypatch.chdir(model.parent)
    monkeypatch.delitem(sys.modules, "a_model", raising=False)
    assert main(["draw", "a_model:loss"]) == 0
    assert "result of sum" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("{}", "expected FILE:FUNCTION"),
        ("{}:los", "has no 'los'; it has loss, step, wrong"),
        ("nowhere.py:loss", "there is no file nowhere.py"),
        ("nowhere:loss", "there is no module nowhere"),
        ("{}:wrong", "received float 3.0; expected a tensor"),
    ],
)
def test_mistakes_are_one_line(capsys, model, target, message):
    assert main(["draw", target.format(model)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and message in err and len(err.splitlines()) == 1


def test_what_is_timed(capsys):
    status, found = printed(capsys, "bench", "--seconds", "0.05")
    assert status == 0 and "tanh" in found["workload"]
    ways = {(way["name"], way["engine"]): way["seconds"] for way in found["ways"]}
    assert {("eager", "native"), ("compiled", "native")} <= ways.keys()
    assert all(1e-6 < seconds < 5 for seconds in ways.values())
    assert machine.Timed("compiled", "native", 0.001).row(0.004)[2:] == ("1.000", "4.0 times")
    assert main(["bench", "--seconds", "0"]) == 2
    assert "expected a positive number" in capsys.readouterr().err


def test_parity_compares_both_engines(capsys):
    pytest.importorskip("tensorflow")
    status, found = printed(capsys, "parity", "np.tanh", "np.matmul", "np.arccosh", "np.split")
    assert status == 0 and found["left_out"] == ["np.split"]
    assert [one["function"] for one in found["compared"]] == ["np.arccosh", "np.matmul", "np.tanh"]
    assert all(one["engine"] == "tensorflow" and one["agrees"] for one in found["compared"])
    assert main(["parity", "np.none"]) == 2
    assert "no NumPy function on tensors is called np.none" in capsys.readouterr().err


def test_parity_finds_what_differs(capsys, monkeypatch):
    def disagree(function, *inputs):
        raise AssertionError("check_parity: input 0 at index (0, 0)")

    monkeypatch.setattr(machine, "check_parity", disagree)
    assert main(["parity", "np.tanh"]) == 1
    out = capsys.readouterr().out
    assert "DIFFERS" in out and "np.tanh: check_parity: input 0" in out and "1 differ." in out


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_where_the_terminal_has_them(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert styled("ok", "good") == "ok"
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert styled("ok", "good") == "\x1b[32mok\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert styled("ok", "good") == "ok"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert styled("ok", "good") == "ok"
