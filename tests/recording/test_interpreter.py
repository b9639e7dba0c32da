"""One walk over a program: what a slot is, a subclass says, and the walk does the rest."""

from __future__ import annotations

import numpy as np

import tapegraph as tg
from tapegraph.capture import Capture
from tapegraph.recording.op import SCALAR
from tapegraph.recording.program import Interpreter


class Text(Interpreter):
    """Writes each slot as text; operations in ``inner`` are programs."""

    def __init__(self, recording, inner=None):
        super().__init__(recording)
        self.inner = inner or {}
        self.backwards = 0

    def operation(self, slot):
        name, operands = self.program.ops[slot].name, self.converted(slot, self.values)
        if name not in self.inner:
            return f"{name}({', '.join(operands)})"
        inner = Text(self.inner[name])
        inner.run(dict(zip(inner.program.fed, operands, strict=True)))
        return inner.values[inner.program.outputs[0]]

    def derivatives(self, slot):
        self.backwards += 1
        y, *_ = self.program.inputs[slot]
        slots = self.program.gradients_of(self.program.backward_of(slot))
        targets = [self.program.inputs[s][1] for s in slots]
        return {target: f"d {self.values[y]} / d {self.values[target]}" for target in targets}

    def constant(self, number, dtype):
        return f"{number}:{dtype}"

    def cast(self, value, dtype):
        return value if value.endswith(f":{dtype}") else f"{value}:{dtype}"


def captured(f, *arrays):
    with Capture() as capture:
        results = f(*map(capture.input, arrays))
    return capture.recording(results)


def test_numbers_take_the_dtype_that_they_are_read_in():
    recording = captured(lambda x: [2.0 * x], np.ones(2, np.float32))
    text = Text(recording)
    text.run(dict.fromkeys(recording.program.fed, "x"))
    (scalar,) = recording.program.scalars
    assert recording.program.ops[scalar] is SCALAR
    assert text.values[scalar] == "2.0:float32"
    assert text.values[recording.program.outputs[0]] == "mul(2.0:float32, x)"


def test_what_one_backward_gives_is_computed_at_once():
    def gradients(x):
        w, v = tg.param([1.0, 2.0]), tg.param([3.0, 4.0])
        tg.sum(w * v * x).backward()
        return [w.grad, v.grad]

    recording = captured(gradients, np.ones(2))
    text = Text(recording)
    text.run({slot: f"leaf{slot}" for slot in recording.program.fed})
    found = [text.values[slot] for slot in recording.program.outputs]
    assert text.backwards == 1
    assert [x.partition(" / ")[2] for x in found] == [
        f"d leaf{recording.program.inputs[slot][1]}" for slot in recording.program.outputs
    ]


def test_slots_are_known_one_after_the_other_and_up_to_an_end():
    recording = captured(lambda x: [np.exp(np.sin(x))], np.ones(2))
    text = Text(recording)
    seen = [text.values[slot] for slot in text.walk({0: "x"})]
    assert seen == ["x", "sin(x)", "exp(sin(x))"]
    text.run({0: "x"}, end=2)
    assert text.values == ["x", "sin(x)", None]


def test_an_entry_may_hold_a_program():
    inner = captured(lambda x: [np.cos(np.exp(x))], np.ones(2))
    outer = captured(lambda x: [np.tanh(np.sin(x))], np.ones(2))
    text = Text(outer, {"sin": inner})
    text.run({0: "x"})
    assert text.values[-1] == "tanh(cos(exp(x)))"
