"""What notebooks show: short, escaped, and without touching what is shown."""

from __future__ import annotations

import html
import re

import numpy as np
import pytest

import tapegraph as tg


def shown(thing) -> str:
    """The text of what a notebook shows, of HTML whose tags are closed."""
    code = thing._repr_html_()
    for tag in ("div", "pre", "table", "b", "tr", "td", "th"):
        assert code.count(f"<{tag}>") + code.count(f"<{tag} ") == code.count(f"</{tag}>")
    return html.unescape(re.sub("<[^>]*>", " ", code))


def test_a_tensor_shows_what_it_is():
    x = tg.param([[1.0, 2.5]], dtype=np.float32, name="weights")
    text = shown(x)
    assert "weights" in text and "float32 (1, 2)" in text and "param" in text
    assert "[[1. , 2.5]]" in text and "grad" not in text
    tg.sum(x * 3.0).backward()
    assert re.search(r"grad\s+\[\[3\., 3\.\]\]", shown(x))
    assert "constant" in shown(tg.tensor([1, 2])) and "int64 (2,)" in shown(tg.tensor([1, 2]))


def test_names_and_errors_are_escaped():
    code = tg.param(1.0, name="<script>&")._repr_html_()
    assert "&lt;script&gt;&amp;" in code and "<script" not in code
    assert "<lambda>" in shown(tg.compile(lambda x: x))
    assert "<lambda>" not in tg.compile(lambda x: x)._repr_html_()


@pytest.mark.parametrize("shape", [(5,), (10_000,), (300, 300), (9, 8, 7, 6, 5), (0, 3), ()])
def test_nothing_is_longer_than_a_screen(shape):
    x = tg.param(np.zeros(shape))
    tg.sum(x).backward()
    assert len(x._repr_html_().splitlines()) <= 25


def test_long_programs_keep_their_beginning_and_end():
    tg.tape_reset()
    y = tg.param(1.0, name="x")
    for _ in range(100):
        y = tg.sin(y)
    recording = tg.tape().recording()
    for thing in (tg.tape(), recording):
        text = shown(thing)
        assert "101 entries" in text and "%0" in text and "%100" in text and "%50" not in text
        assert thing._repr_html_().count("<tr>") <= 26
        assert "78 more" in text  # of 101 there are 23
    assert "test_notebooks.py" in shown(recording)


def test_steps_and_reports():
    w = tg.param([1.0])
    f = tg.compile(lambda x: tg.sum(w * x))
    f(np.ones(1))
    assert f.explain() in shown(f)
    with tg.use_backend("native"):
        tg.sum(w * 2.0).backward()
    text = shown(tg.last_backward())
    assert "native: the backend was native" in text
    assert re.search(r"entries\s+4", text)
