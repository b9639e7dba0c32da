"""How many of the library's own Python functions an operation calls: exact, whatever the load.

A count that rises is a slower library. One that falls is written down, so that it stays:
``python -m tests.whole.test_call_budget`` prints the table as it is now. Counted are calls of the
package's functions alone, without comprehensions: they are the same in every Python and NumPy.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# Calls natively, and what `auto` adds without TensorFlow, and where it is installed.
BUDGET = {
    "x * y": (2, 0, 0),
    "x[0]": (9, 0, 0),
    "x[1:3]": (9, 0, 0),
    "image[0, 1:3]": (9, 0, 0),
    "np.sum(x)": (8, 0, 0),
    "np.clip(x, 2, 3)": (9, 0, 0),
    "np.var(x)": (21, 0, 0),
    "np.std(x)": (24, 0, 0),
    "sum(x * y).backward()": (34, 0, 0),
    "grad(f)(x)": (41, 0, 0),
    "layer_norm and backward": (58, 0, 7),
    "SGD.step()": (21, 0, 0),
    "Adam.step()": (70, 0, 0),
    "a compiled step": (41, 2, 4),
}

# Where TensorFlow stands as installed nothing imports it: it does not pay yet.
CODE = """
import json, sys, time
if sys.argv[1] == "absent":
    sys.modules["tensorflow"] = None
import numpy as np
import tapegraph as tg
from tapegraph.engines import auto, choice
from tapegraph.lowering import runtime
if sys.argv[1] == "present":
    runtime._found = True

PARTS = (tg, tg.fallback, tg.lowering)
FOLDERS = tuple({folder + "/" for part in PARTS for folder in part.__path__})
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>")


def calls(run):
    found = []
    choice.CLOCK.now = time.perf_counter
    for _ in range(400):  # until caches are filled and `auto` has looked around
        run()
    choice.CLOCK.now = lambda: 0.0  # counting takes time, in which `auto` would look again
    for _ in range(9):
        count = 0

        def profile(frame, event, arg):
            nonlocal count
            code = frame.f_code
            if event == "call" and code.co_name not in COMPREHENSIONS:
                count += code.co_filename.startswith((*FOLDERS, "<tapegraph"))

        sys.setprofile(profile)
        try:
            run()
        finally:
            sys.setprofile(None)
        found.append(count)
    return min(found)  # one call in many forgets dead entries of the tape


x, y = tg.param(np.arange(1.0, 9.0)), tg.param(np.arange(2.0, 10.0))
image, scale, offset = tg.param(np.eye(4, 8)), tg.param(np.ones(8)), tg.param(np.zeros(8))
plain = np.arange(8.0)
w, v = tg.param(np.ones(8)), tg.param(np.ones(8))
tg.sum(w * v).backward()
slope = tg.grad(lambda x: tg.sum(x * x))
network = tg.param(np.ones(8))
optimizer = tg.SGD([network], lr=0.01)


@tg.compile(verify_every=None)
def step(x):
    loss = tg.sum((network * x) ** 2)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def normalised():
    if sys.argv[1] == "present":
        auto.BACKWARDS.until = 0.0  # it has no node there, which is asked anew each time
    tg.sum(tg.layer_norm(image, scale, offset)).backward()


sgd, adam = tg.SGD([w, v], lr=0.1), tg.Adam([w, v])
runs = {
    "x * y": lambda: x * y,
    "x[0]": lambda: x[0],
    "x[1:3]": lambda: x[1:3],
    "image[0, 1:3]": lambda: image[0, 1:3],
    "np.sum(x)": lambda: np.sum(x),
    "np.clip(x, 2, 3)": lambda: np.clip(x, 2.0, 3.0),
    "np.var(x)": lambda: np.var(x),
    "np.std(x)": lambda: np.std(x),
    "sum(x * y).backward()": lambda: tg.sum(x * y).backward(),
    "grad(f)(x)": lambda: slope(plain),
    "layer_norm and backward": normalised,
    "SGD.step()": sgd.step,
    "Adam.step()": adam.step,
    "a compiled step": lambda: step(plain),
}
found = {}
for title, run in runs.items():
    for backend in ("native", "auto"):
        tg.set_backend(backend)
        found.setdefault(title, []).append(calls(run))
print(json.dumps(found))
"""


def counted() -> dict[str, tuple[int, int, int]]:
    """Return the table as it is now."""
    found = []
    for tensorflow in ("absent", "present"):
        command = [sys.executable, "-c", CODE, tensorflow]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr)
        found.append(json.loads(done.stdout))
    alone, beside = found
    for title, (native, _) in alone.items():
        assert native == beside[title][0], (
            f"{title}: natively it matters whether TensorFlow is there"
        )
    return {
        title: (native, automatic - native, beside[title][1] - native)
        for title, (native, automatic) in alone.items()
    }


def as_text(table: dict[str, tuple[int, int, int]]) -> str:
    rows = "".join(f'    "{title}": {counts},\n' for title, counts in table.items())
    return f"BUDGET = {{\n{rows}}}"


@pytest.fixture(scope="module")
def now():
    return counted()


def test_no_operation_calls_more_functions_than_before_or_fewer_unnoticed(now):
    assert now == BUDGET, f"\nif that is what you wanted, write\n\n{as_text(now)}"


def test_auto_costs_five_calls_at_most_where_there_is_no_tensorflow(now):
    assert {title: more for title, (_, more, _) in now.items() if more > 5} == {}


if __name__ == "__main__":
    print(as_text(counted()))
