"""Captured rules: run again, they give what eager steps give, to the bit.

The gradients are the program's inputs, so that these tests are of the optimizers alone.
"""

from __future__ import annotations

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.capture import Capture
from tapegraph.optim import clipping, optimizer, options, schedules
from tests.optim.trajectories import CONFIGS
from tests.quick import thinned
from tests.replay import replay

EVERY = {
    **CONFIGS,
    "Lion": ("Lion", {}),
    "Lion decay": ("Lion", {"weight_decay": 0.3, "betas": (0.8, 0.5)}),
}
SHAPES = {"w": (3, 4), "b": (4,), "scale": ()}


class Recorded:
    """One step of some optimizer, captured and then replayed with other gradients."""

    def __init__(self, monkeypatch, change, params):
        self.params = params
        self.new_gradients = {}
        with Capture() as capture:
            grads = {id(p): capture.input(np.zeros(p.shape, p.dtype)) for p in params}

            def gradient_of(p, *, rows):
                return self.new_gradients.get(id(p), grads[id(p)])

            def set_gradient(p, g):
                self.new_gradients[id(p)] = g

            with monkeypatch.context() as patch:
                patch.setattr(optimizer, "gradient_of", gradient_of)
                all_of = lambda ps, *, rows: [gradient_of(p, rows=rows) for p in ps]  # noqa: E731
                patch.setattr(clipping, "gradients_of", all_of)
                patch.setattr(clipping, "replace_gradient", set_gradient)
                out = change()
        self.read = {id(leaf): read for leaf, read in capture.readings}
        clipped = [self.new_gradients[id(p)] for p in params if id(p) in self.new_gradients]
        self.recording = capture.recording([] if out is None else [out, *clipped])
        self.inputs = {id(leaf): place for place, leaf in enumerate(grads.values())}

    def run(self, *grads):
        """Run the program on the present state, and store what it changes."""
        program, values, nodes = (
            self.recording.program,
            self.recording.values,
            self.recording.nodes,
        )
        given = {}
        for slot in program.leaves:
            node = nodes[slot]
            if id(node) in self.inputs:
                given[slot] = grads[self.inputs[id(node)]]
            elif id(node) in self.read:
                given[slot] = np.asarray(self.read[id(node)](), program.dtypes[slot])
            else:
                given[slot] = values[slot] if node is None else node._array
        outputs, updates = replay(program, given)
        for slot, value in updates.items():
            nodes[slot]._array = np.array(value)
        return outputs


def made(kind, options, dtype, lr=0.1):
    rng = np.random.default_rng(5)
    params = {k: tg.param(np.asarray(rng.normal(size=s), dtype), name=k) for k, s in SHAPES.items()}
    return getattr(tg, kind)(params, lr=lr, **options)


def gradients(seed, dtype):
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.normal(size=shape), dtype) for shape in SHAPES.values()]


def same(a, b):
    for p, q in zip(a.params, b.params, strict=True):
        assert p.dtype == q.dtype
        np.testing.assert_array_equal(p.data, q.data)
    for name, slots in a.state.items():
        for key, slot in slots.items():
            np.testing.assert_array_equal(slot.data, b.state[name][key].data, err_msg=key)


def step_eagerly(optimizer, grads):
    for p, g in zip(optimizer.params, grads, strict=True):
        p.grad = g
    optimizer.step()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", EVERY)
def test_a_step_run_again_is_an_eager_one_to_the_bit(monkeypatch, name, dtype):
    eager, other = (made(*EVERY[name], dtype) for _ in range(2))
    before = other.state_dict(), [p.numpy() for p in other.params]
    step = Recorded(monkeypatch, other.step, other.params)
    other.load_state_dict(before[0])
    for p, array in zip(other.params, before[1], strict=True):
        p.assign(array)
    for n in range(6):
        eager.lr = other.lr = 0.1 / (1 + n)  # seen without a new recording
        step_eagerly(eager, gradients(n, dtype))
        step.run(*gradients(n, dtype))
        same(eager, other)
    assert other.steps == eager.steps == 6


def test_the_first_run_counts_like_any_other(monkeypatch):
    # The bias corrections are those of the step that is run, not of the one that was recorded.
    eager, other = (made("Adam", {}, np.float64) for _ in range(2))
    step = Recorded(monkeypatch, other.step, other.params)  # gradients of zero
    step_eagerly(eager, [np.zeros(shape) for shape in SHAPES.values()])
    same(eager, other)
    for n in range(3):
        step_eagerly(eager, gradients(n, np.float64))
        step.run(*gradients(n, np.float64))
        same(eager, other)


def test_schedules_and_groups_are_followed(monkeypatch):
    def optimizer():
        rng = np.random.default_rng(5)
        w, b, scale = (tg.param(rng.normal(size=shape)) for shape in SHAPES.values())
        groups = [
            {"params": [w], "lr": schedules.exponential(0.5, 0.5)},
            {"params": [b, scale], "weight_decay": 0.25},
        ]
        return tg.RMSprop(groups, lr=schedules.warmup(3, schedules.cosine(0.1, 10)))

    eager, other = optimizer(), optimizer()
    step = Recorded(monkeypatch, other.step, other.params)
    step_eagerly(eager, [np.zeros(shape) for shape in SHAPES.values()])
    for n in range(8):
        if n == 5:
            eager.groups[1].lr = other.groups[1].lr = 0.75
        step_eagerly(eager, gradients(n, np.float64))
        step.run(*gradients(n, np.float64))
        same(eager, other)


def test_a_rate_that_is_none_stops_the_run_before_it_starts(monkeypatch):
    optimizer = made("SGD", {}, np.float64, lr=lambda step: [0.1, 0.1, np.nan][step])
    step = Recorded(monkeypatch, optimizer.step, optimizer.params)
    step.run(*gradients(0, np.float64))
    with pytest.raises(ValueError, match=r"SGD: received lr\(2\)=nan"):
        step.run(*gradients(1, np.float64))


@pytest.mark.parametrize("max_norm", [0.5, 100.0])
def test_clipping_run_again_is_eager_clipping_to_the_bit(monkeypatch, max_norm):
    optimizer = made("SGD", {}, np.float64)
    params = optimizer.params
    clip = Recorded(monkeypatch, lambda: tg.clip_grad_norm(params, max_norm), params)
    for n in range(3):
        grads = gradients(n, np.float64)
        norm, *clipped = clip.run(*grads)
        for p, g in zip(params, grads, strict=True):
            p.grad = g
        assert norm == tg.clip_grad_norm(params, max_norm).item()
        for p, g in zip(params, clipped, strict=True):
            np.testing.assert_array_equal(p.grad, g)
    grads[0][0, 0] = np.inf
    norm, *clipped = clip.run(*grads)
    assert norm == np.inf
    assert all(np.isnan(g).all() for g in clipped)


def test_clipping_by_value_run_again(monkeypatch):
    params = made("SGD", {}, np.float64).params

    def change():
        tg.clip_grad_value(params, 0.5)
        return params[0] * 1.0

    clip = Recorded(monkeypatch, change, params)
    grads = gradients(1, np.float64)
    _, *clipped = clip.run(*grads)
    for g, want in zip(clipped, grads, strict=True):
        np.testing.assert_array_equal(g, np.clip(want, -0.5, 0.5))


def test_a_rule_of_ones_own_is_recorded_like_any_other(monkeypatch):
    class Rprop(tg.Optimizer):
        def init(self, p):
            return {"size": np.full_like(p, 0.1), "before": np.zeros_like(p)}

        def update(self, p, g, state, lr):
            factor = np.where(g * state["before"] > 0, 1.2, np.where(g == 0, 1.0, 0.5))
            size = state["size"] * factor.astype(p.dtype)
            return p - lr * np.sign(g) * size, {"size": size, "before": g}

    def optimizer():
        rng = np.random.default_rng(5)
        return Rprop([tg.param(rng.normal(size=s), dtype=np.float32) for s in SHAPES.values()], 1.0)

    eager, other = optimizer(), optimizer()
    step = Recorded(monkeypatch, other.step, other.params)
    step_eagerly(eager, [np.zeros(shape) for shape in SHAPES.values()])
    for n in range(5):
        step_eagerly(eager, gradients(n, np.float32))
        step.run(*gradients(n, np.float32))
        same(eager, other)


def test_the_gradient_is_read_in_one_place():
    assert optimizer.gradient_of is options.gradient_of
    assert clipping.gradients_of is options.gradients_of


@pytest.mark.parametrize("dtype", thinned([np.float64, np.float32], 2))
@pytest.mark.parametrize("name", EVERY)
@pytest.mark.one_in(4)
def test_every_rule_is_a_graph_that_gives_the_same(name, dtype):
    pytest.importorskip("tensorflow")
    from tests.lowering.forward import forward

    rule = made(*EVERY[name], dtype)
    w, g = rule.params[0].numpy(), gradients(1, dtype)[0]
    state = {k: slot.numpy() / 2 + 0.25 for k, slot in rule.state["w"].items()}
    slot_names = list(state)
    state |= {k: np.asarray(x, dtype) for k, x in rule.numbers(0.1, 3).items()}
    arrays = [w, g, *state.values(), np.asarray(0.1, dtype)]
    new, slots = rule.update(w, g, state, arrays[-1])
    with Capture() as capture, tg.no_grad():
        p, g, *held, lr = map(capture.input, arrays)
        out, out_slots = rule.update(p, g, dict(zip(state, held, strict=True)), lr)
    recording = capture.recording([out, *(out_slots[k] for k in slot_names)])
    got = forward(recording)([recording.values[slot] for slot in recording.program.fed])
    tolerance = 1e-12 if dtype is np.float64 else 1e-5
    for result, want in zip(got, [new, *(slots[k] for k in slot_names)], strict=True):
        assert result.dtype == np.asarray(want).dtype
        np.testing.assert_allclose(result, want, rtol=tolerance, atol=tolerance)
