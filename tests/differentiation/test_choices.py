"""Choices kept on disk: whole files, other machines' apart, and never a reason to fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.engines import choice_file, choices
from tapegraph.recording.trace import linearise


@pytest.fixture(autouse=True)
def nothing_read(monkeypatch):
    monkeypatch.setattr(choice_file, "_read", {})
    monkeypatch.setattr(choice_file, "_warned", set())


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv(choices.VARIABLE, str(tmp_path / "made" / "when needed"))
    return tmp_path / "made" / "when needed"


def key(size: int):
    x = tg.param(np.ones(size))
    return linearise([tg.sum(tg.tanh(x) * x[:1])]).program.key


def test_nothing_is_kept_unless_the_user_asks(monkeypatch):
    monkeypatch.delenv(choices.VARIABLE, raising=False)
    assert choices.kept("an engine", key(3)) is None


def test_what_was_kept_is_found_by_structure_and_by_which_choice_it_is(folder):
    choices.kept("an engine", key(3)).remember({"native": 0.25, "other": 0.5})
    for _ in range(2):
        assert choices.kept("an engine", key(3)).recall() == {"native": 0.25, "other": 0.5}
        assert choices.kept("an engine", key(4)).recall() == {}
        assert choices.kept("a graph", key(3)).recall() == {}
        choice_file._read.clear()  # as another process does
    (file,) = folder.iterdir()
    assert json.loads(file.read_text())["machine"]["numpy"] == np.__version__


@pytest.mark.parametrize("variable", ["OPENBLAS_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"])
def test_another_number_of_threads_is_another_machine(folder, monkeypatch, variable):
    choices.kept("an engine", key(3)).remember({"native": 0.25})
    monkeypatch.setenv(variable, "77")
    assert choices.kept("an engine", key(3)).recall() == {}


def test_another_version_is_another_machine(folder, monkeypatch):
    choices.kept("an engine", key(3)).remember({"native": 0.25})
    monkeypatch.setattr(choice_file, "VERSION", "77.0")
    assert choices.kept("an engine", key(3)).recall() == {}


def test_what_another_process_wrote_meanwhile_stays(folder):
    ours = choices.kept("an engine", key(3))
    assert ours.recall() == {}
    choice_file._read.clear()
    choices.kept("an engine", key(4)).remember({"native": 1.0})
    ours.remember({"native": 2.0})
    choice_file._read.clear()
    assert choices.kept("an engine", key(4)).recall() == {"native": 1.0}
    assert choices.kept("an engine", key(3)).recall() == {"native": 2.0}


def test_the_oldest_leave_first(folder, monkeypatch):
    monkeypatch.setattr(choice_file, "LIMIT", 2)
    for size in (1, 2, 3, 2, 4):
        choices.kept("an engine", key(size)).remember({"native": float(size)})
    found = [choices.kept("an engine", key(size)).recall() for size in (1, 2, 3, 4)]
    assert found == [{}, {"native": 2.0}, {}, {"native": 4.0}]


@pytest.mark.parametrize("text", ["", '{"choices": {"a"', "[]", '{"choices": {"a": 3}}', "\0"])
def test_a_broken_file_is_measured_anew_and_said_once(folder, text):
    choice = choices.kept("an engine", key(3))
    choice.remember({"native": 1.0})
    (file,) = folder.iterdir()
    file.write_text(text)
    choice_file._read.clear()
    with pytest.warns(RuntimeWarning, match="cannot be read, and is measured anew"):
        assert choice.recall() == {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        choice.remember({"native": 2.0})
        choice_file._read.clear()
        assert choice.recall() == {"native": 2.0}
    assert [file] == list(folder.iterdir())


def test_a_folder_that_cannot_be_written_is_no_failure(monkeypatch, tmp_path):
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv(choices.VARIABLE, str(tmp_path / "a file"))
    choice = choices.kept("an engine", key(3))
    with pytest.warns(RuntimeWarning, match="TAPEGRAPH_CACHE_DIR: .* cannot be"):
        choice.remember({"native": 2.0})
    assert choice.recall() == {"native": 2.0}  # in this process


def test_what_is_no_number_is_not_kept(folder):
    choices.kept("an engine", key(3)).remember({"native": float("inf")})
    assert not folder.exists()


def test_a_crash_while_writing_leaves_the_file_as_it_was(folder, monkeypatch):
    choice = choices.kept("an engine", key(3))
    choice.remember({"native": 1.0})

    def fails(source, target):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "replace", fails)
        choice.remember({"native": 2.0})
    choice_file._read.clear()
    assert choice.recall() == {"native": 1.0}
    assert len(list(folder.iterdir())) == 1


WRITERS = """
import sys
from tapegraph.engines import choice_file, choices
for i in range(40):
    choices.kept("an engine", (sys.argv[1], i)).remember({"native": 1.0 + i})
    if choice_file._warned:
        sys.exit("a file that is not whole")
"""


def test_processes_that_write_at_once_see_whole_files(folder):
    command = [sys.executable, "-W", "error", "-c", WRITERS]
    running = [subprocess.Popen([*command, str(i)]) for i in range(2)]
    assert [p.wait(60) for p in running] == [0, 0]
    last = [choices.kept("an engine", (str(i), 39)).recall() for i in range(2)]
    assert {"native": 40.0} in last
    assert len(list(folder.iterdir())) == 1


STEPS = """
import numpy as np
import tapegraph as tg
from tapegraph.lowering.steps.step import Step

made = []
init = Step.__init__
def noted(self, *given):
    made.append(1)
    init(self, *given)
Step.__init__ = noted
import tensorflow
w = tg.param(np.ones((300, 300)))

@tg.compile
def step(x):
    loss = tg.sum(tg.tanh(x @ w) ** 2)
    w.grad = None
    loss.backward()
    return loss

steps = 0
while steps < 400 and not made:  # until TensorFlow's price is a tenth of what has run
    step(np.ones((300, 300)))
    steps += 1
for _ in range(20):
    step(np.ones((300, 300)))
print(len(made), step.explain().partition("ran in ")[2])
"""


def test_auto_measures_engines_in_the_first_process_alone(run_python, folder):
    pytest.importorskip("tensorflow")
    outs = []
    for _ in range(2):
        done = run_python(STEPS, TAPEGRAPH_BACKEND="auto", TAPEGRAPH_CACHE_DIR=str(folder))
        assert done.returncode == 0, done.stderr
        outs.append(done.stdout)
    assert outs[0].startswith("1 ")  # native and TensorFlow were both measured
    (file,) = folder.iterdir()
    (seconds,) = [of for of in json.loads(file.read_text())["choices"].values() if "native" in of]
    if seconds["native"] <= seconds["tensorflow"]:
        assert outs[1].startswith("0 native: auto: the native engine took")
    else:
        assert outs[1].startswith("1 tensorflow")
