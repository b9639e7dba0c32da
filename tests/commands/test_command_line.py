"""The command line: what each command prints, for people and for machines."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.__main__ import info, main, styled
from tapegraph.environment import switched


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
    assert lines == info() and len(lines) == len(facts)
    assert all(f"{topic:<11} {text}" in lines for topic, text in facts.items())


@pytest.mark.thorough  # TensorFlow takes seconds to import
def test_info_imports_tensorflow_where_that_is_asked_for(run_python):
    program = """
        import sys
        from tapegraph.__main__ import main
        from tapegraph.__main__ import facts

        main(["info", "--json"])
        print("tensorflow" in sys.modules)
        facts(load=True)
        print("tensorflow" in sys.modules)
    """
    done = run_python(program)
    facts, before, after = done.stdout.splitlines()
    found = json.loads(facts)
    if importlib.util.find_spec("tensorflow"):
        assert re.fullmatch(r"\d+\.\d+\.\S+, not imported here", found["tensorflow"])
        assert "and TensorFlow for what measures faster" in found["backend"]
        assert "tapegraph info --load" in found["devices"]
        assert (before, after) == ("False", "True")
    else:
        assert found["tensorflow"].startswith("not used: TensorFlow is not installed")
        assert found["devices"] == "CPU (NumPy)"


def test_the_version(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"tapegraph {tg.__version__}\n"


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("TAPEGRAPH_BACKEND", "x", "one of 'auto', 'tensorflow', 'native'"),
        ("TAPEGRAPH_FORWARD", "x", "one of 'numpy', 'tensorflow'"),
        ("TAPEGRAPH_XLA", "true", "'1', '0' or 'auto'"),
        ("TAPEGRAPH_STRICT", "false", "'1' or '0'"),
    ],
)
def test_a_wrong_variable_is_one_line_of_the_command(variable, value, expected):
    done = subprocess.run(
        [sys.executable, "-m", "tapegraph", "info"],
        capture_output=True,
        text=True,
        env={**os.environ, variable: value},
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"tapegraph: {variable}: received {value!r}; expected {expected}\n"


@pytest.mark.parametrize("variable", ["TAPEGRAPH_STRICT", "TAPEGRAPH_COMPILE"])
def test_a_switch_that_is_neither_on_nor_off_is_refused(variable, monkeypatch):
    for value, state in (("1", True), ("0", False), ("", None)):
        monkeypatch.setenv(variable, value)
        assert switched(variable) is state
    monkeypatch.setenv(variable, "no")
    reads = {  # each reads one of them
        "TAPEGRAPH_STRICT": lambda: float(tg.param(1.0) * 2.0),
        "TAPEGRAPH_COMPILE": lambda: tg.compile(lambda x: x * 2.0)(1.0),
    }
    with pytest.raises(ValueError, match=rf"^{variable}: received 'no'; expected '1' or '0'$"):
        reads[variable]()


def test_functions_for_machines(capsys):
    status, rows = printed(capsys, "functions")
    assert status == 0
    assert {"NumPy": "np.sin", "tapegraph": "tg.sin", "engine": "both"} in rows


@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
def test_any_stdout_will_do():
    command = f"exec '{sys.executable}' -m tapegraph"
    ways = {"PYTHONIOENCODING=ascii {} functions": b"tg.sin", "{} info >&-": b""}
    for how, out in ways.items():
        done = subprocess.run(["sh", "-c", how.format(command)], capture_output=True)
        assert (done.returncode, done.stderr) == (0, b"") and out in done.stdout
    done = subprocess.run(f"{command} functions | head -n 1", shell=True, capture_output=True)
    titles = [b"NumPy", b"tapegraph", b"engine"]
    assert done.stderr == b"" and done.stdout.split()[::2] == titles


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_where_the_terminal_has_them(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert styled("ok", "bad") == "ok"
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert styled("ok", "bad") == "\x1b[31mok\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert styled("ok", "bad") == "ok"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert styled("ok", "bad") == "ok"
