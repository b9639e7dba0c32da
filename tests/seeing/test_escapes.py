"""Names and paths of any characters: no text of theirs is code, or rules a terminal."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import tapegraph as tg
from tapegraph import display
from tapegraph.errors import escaped, escaped_lines

# A title for the terminal, a line that is code, a turned direction, and half of a pair.
EVIL = "a\x1b]0;title\x07\nraise SystemExit\n# \u202e\ud800"
PROGRAM = """
w = tg.param(np.ones(3), name=NAME)

def step(x):
    return tg.sum(w * x)

step.__name__ = NAME
step = tg.compile(step)
results = [step(np.full(3, 2.0)).item() for _ in range(4)]
with tg.profile() as profile:
    y = tg.sum(w * w)
    y.backward()
    step(np.ones(3))
"""


@pytest.fixture
def found():
    """What a program has made whose file, parameter and step have such a name."""
    names = {"tg": tg, "np": np, "NAME": EVIL}
    with tg.use_backend("native"):
        exec(compile(PROGRAM, f"{EVIL}.py", "exec"), names)
        yield names


def check(text: str) -> None:
    assert escaped(EVIL) in text
    assert all(c.isprintable() or c == "\n" for c in text)


def test_one_line_is_left_of_any_text():
    assert escaped("as it is: ü 日本 \\") == "as it is: ü 日本 \\"
    assert escaped("\x1b[2J\x9b\n\t\u202e\ud800\xa0") == r"\x1b[2J\x9b\n\t\u202e\ud800\xa0"
    assert escaped_lines("a\x07\n\tb") == "a\\x07\n\tb"


def test_a_path_is_a_comment_of_the_plan_and_not_code(found):
    assert found["results"] == [6.0] * 4
    plan = found["step"].source()
    check(plan)
    assert not [line for line in plan.splitlines() if line.startswith("raise")]


def test_what_is_printed(found):
    step, y = found["step"], found["y"]
    for text in (repr(step), step.explain(), tg.explain(y), str(tg.tape()), str(found["profile"])):
        check(text)
    for html in (step._repr_html_(), tg.tape()._repr_html_(), found["profile"]._repr_html_()):
        assert "\x1b" not in html and "\ud800" not in html
    drawing = tg.draw(y)
    assert r"a\x1b]0;title\x07 raise" in str(drawing)
    assert "\x1b" not in f"{drawing}{drawing.svg()}{drawing.dot()}"


def test_errors_warnings_and_the_log(found, caplog, monkeypatch, capsys):
    w, step = found["w"], found["step"]
    with pytest.raises(RuntimeError) as error:
        tg.gradients(tg.sum(tg.param(1.0) * 2.0), [w])
    check(str(error.value))
    y = tg.sum(w * w)
    w.assign(np.zeros(3))
    with pytest.raises(RuntimeError) as error:
        y.backward()
    check(str(error.value))
    with caplog.at_level(logging.INFO, "tapegraph"):
        step(np.ones((2, 3)))
    check(caplog.text)
    monkeypatch.setattr(display, "PATIENCE", 0.0)
    monkeypatch.setenv("TAPEGRAPH_PROGRESS", "1")
    with display.counted(EVIL, 3) as tell:
        tell(1)
    assert "\x1b]0" not in capsys.readouterr().err
