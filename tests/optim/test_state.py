"""Groups, names, options, and state that is saved and loaded."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tapegraph as tg
from tests.optim.trajectories import CONFIGS, RATES, flat
from tests.quick import in_one, thinned

EVERY = {**CONFIGS, "Lion": ("Lion", {"weight_decay": 0.1})}


def params():
    rng = np.random.default_rng(3)
    return {"w": tg.param(rng.normal(size=(3, 2))), "b": tg.param(rng.normal(size=2))}


def train(optimizer, steps, made=lambda step: step):
    w, b = optimizer.params

    @made
    def step():
        optimizer.zero_grad()
        (tg.tanh(np.eye(3) @ w + b) ** 2).sum().backward()
        optimizer.step()

    for _ in range(steps):
        step()


# -- groups --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Lion"])
def test_groups_are_optimizers_of_their_own(kind):
    make = getattr(tg, kind)
    together, alone = params(), params()
    groups = [
        {"params": [together["w"]], "lr": 0.02, "weight_decay": 0.3},
        {"params": {"b": together["b"]}},
    ]
    optimizers = [
        make([alone["w"]], lr=0.02, weight_decay=0.3),
        make([alone["b"]], lr=0.05, weight_decay=0.1),
    ]
    one = make(groups, lr=0.05, weight_decay=0.1)
    for _ in range(5):
        for p in (together, alone):
            tg.zero_grad(p.values())
            (tg.tanh(p["w"] + p["b"]) ** 2).sum().backward()
        one.step()
        for optimizer in optimizers:
            optimizer.step()
    for name in together:
        np.testing.assert_array_equal(together[name].data, alone[name].data)


def test_groups_follow_the_optimizers_rate_unless_they_have_their_own():
    a, b = tg.param(0.0), tg.param(0.0)
    optimizer = tg.SGD([{"params": [a], "lr": 1.0}, {"params": [b]}], lr=0.5)
    (a + b).backward()
    optimizer.lr = 0.25
    optimizer.step()
    assert (a.item(), b.item()) == (-1.0, -0.25)
    optimizer.groups[0].lr = None
    optimizer.groups[1].lr = lambda step: float(step)
    optimizer.step()
    assert (a.item(), b.item()) == (-1.25, -1.25)
    for rate in (-1.0, np.nan):
        with pytest.raises(ValueError, match="SGD: received lr"):
            optimizer.groups[0].lr = rate


def test_names_are_keys_or_the_tensors_own_or_places():
    w, b, again, plain = (tg.param(0.0, name=n) for n in ("w", "b", "b", None))
    value = tg.Value(0.0, label="v")
    assert [*tg.Adam([w, b, again, plain, value]).state] == ["w", "1", "2", "3", "v"]
    assert [*tg.Adam({"x": w, "y": b}).state] == ["x", "y"]
    groups = [{"params": {"x": w}}, {"params": iter([b, plain])}]
    optimizer = tg.Adam(groups)
    assert [*optimizer.state] == ["x", "b", "2"]
    assert [group.names for group in optimizer.groups] == [["x"], ["b", "2"]]
    assert optimizer.params == [w, b, plain]


BAD_PARAMS = {
    "a tensor": (lambda x, y: x, TypeError, r"Write \[w\]"),
    "a value": (lambda x, y: tg.Value(1.0), TypeError, r"Write \[w\]"),
    "a number": (lambda x, y: 3, TypeError, "a list of parameters"),
    "a constant": (lambda x, y: [tg.tensor(1.0)], TypeError, "tg.param"),
    "a result in a dict": (lambda x, y: {"x": x * 1.0}, TypeError, "tg.param"),
    "an array": (lambda x, y: [np.ones(2)], TypeError, "tg.param"),
    "one twice": (lambda x, y: [x, y, x], ValueError, "more than once"),
    "one in two groups": (
        lambda x, y: [{"params": [x]}, {"params": [y, x]}],
        ValueError,
        "more than once",
    ),
    "a tensor as a group": (lambda x, y: [{"params": [x]}, y], TypeError, "among groups"),
    "a group of a tensor": (lambda x, y: [{"params": x}], TypeError, r"Write \[w\]"),
    "a group of nothing": (lambda x, y: [{"lr": 0.1}], TypeError, "without 'params'"),
    "a group's momentum": (
        lambda x, y: [{"params": [x], "momentum": 0.9}],
        TypeError,
        r"\['momentum'\]; expected groups of params, lr, weight_decay",
    ),
    "a group's rate": (lambda x, y: [{"params": [x], "lr": -1}], ValueError, "lr=-1"),
    "a group's decay": (
        lambda x, y: [{"params": [x], "weight_decay": np.inf}],
        ValueError,
        "weight_decay=inf",
    ),
    "a name that is none": (lambda x, y: {0: x}, TypeError, "names that are strings"),
    "a name twice": (
        lambda x, y: [{"params": {"a": x}}, {"params": {"a": y}}],
        ValueError,
        "2 parameters named 'a'",
    ),
}


@pytest.mark.parametrize("name", BAD_PARAMS)
def test_what_are_no_parameters_is_refused(name):
    make, kind, message = BAD_PARAMS[name]
    with pytest.raises(kind, match=f"Adam: .*{message}"):
        tg.Adam(make(tg.param(1.0), tg.param(2.0)))


# -- options -------------------------------------------------------------------------------------

BAD_OPTIONS = [
    ("SGD", {"momentum": -0.1}, ValueError, "momentum=-0.1"),
    ("SGD", {"momentum": np.nan}, ValueError, "momentum=nan"),
    ("SGD", {"momentum": "a"}, TypeError, "'momentum'; expected a number"),
    ("SGD", {"dampening": -1.0}, ValueError, "dampening"),
    ("SGD", {"weight_decay": -1.0}, ValueError, "weight_decay=-1.0"),
    ("SGD", {"nesterov": True}, ValueError, "nesterov with momentum=0"),
    ("SGD", {"nesterov": True, "momentum": 0.9, "dampening": 0.1}, ValueError, "no dampening"),
    ("SGD", {"nesterov": 1, "momentum": 0.9}, TypeError, "True or False"),
    ("Adam", {"betas": (0.9, 1.0)}, ValueError, r"betas\[1\]=1.0; .*at least 0 and below 1"),
    ("Adam", {"betas": (-0.1, 0.9)}, ValueError, r"betas\[0\]=-0.1"),
    ("Adam", {"betas": 0.9}, TypeError, "a tuple of 2 numbers"),
    ("Adam", {"betas": (0.9, 0.9, 0.9)}, TypeError, "a tuple of 2 numbers"),
    ("Adam", {"eps": -1e-8}, ValueError, "eps"),
    ("Adam", {"amsgrad": "no"}, TypeError, "True or False"),
    ("AdamW", {"weight_decay": np.nan}, ValueError, "weight_decay=nan"),
    ("RMSprop", {"alpha": 1.0}, ValueError, "alpha=1.0"),
    ("RMSprop", {"centered": None}, TypeError, "'centered'"),
    ("Adagrad", {"lr_decay": -1}, ValueError, "lr_decay=-1"),
    ("Adagrad", {"initial_accumulator_value": -1}, ValueError, "initial_accumulator_value"),
    ("Lion", {"betas": (1.0, 0.9)}, ValueError, r"betas\[0\]"),
]


@in_one(("kind", "options", "error", "message"), BAD_OPTIONS)
def test_options_out_of_range_are_refused(kind, options, error, message):
    with pytest.raises(error, match=f"{kind}: received .*{message}"):
        getattr(tg, kind)([tg.param(1.0)], lr=0.1, **options)


@in_one("kind", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Lion"])
@in_one("lr", [np.inf, np.nan, -1.0, "a", None, lambda step: -1.0])
def test_rates_that_are_none_are_refused(kind, lr):
    error = TypeError if lr in ("a", None) else ValueError
    with pytest.raises(error, match=f"{kind}: received"):
        getattr(tg, kind)([tg.param(1.0)], lr=lr)
    optimizer = getattr(tg, kind)([tg.param(1.0)], lr=0.5)
    with pytest.raises(error, match=f"{kind}: received"):
        optimizer.lr = lr
    assert optimizer.lr == 0.5


def test_options_are_fixed_once_they_are_set():
    optimizer = tg.SGD([tg.param(1.0)], lr=0.1, momentum=0.9)
    with pytest.raises(
        AttributeError, match=r"SGD: momentum is fixed at construction.*Make a new SGD"
    ):
        optimizer.momentum = 0.5
    with pytest.raises(AttributeError):
        optimizer.groups[0].weight_decay = 0.5
    assert optimizer.momentum == 0.9


def test_an_option_read_before_it_is_set_says_how_to():
    class Late(tg.Lion):
        def __init__(self, params):
            tg.Optimizer.__init__(self, params, 0.1)

    optimizer = Late([tg.param(1.0)])
    with pytest.raises(AttributeError, match="betas is not set.*before super"):
        optimizer.betas  # noqa: B018


# -- state ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "name"),
    [("eager", name) for name in EVERY]
    + [pytest.param("compiled", *row.values, marks=row.marks) for row in thinned(EVERY, 4)],
    indirect=["made"],
)
@pytest.mark.one_in(4, start=1)
def test_a_run_goes_on_where_another_was_saved(name, made):
    kind, options = EVERY[name]

    def make():
        return getattr(tg, kind)(params(), lr=RATES[kind], **options)

    whole, first, second = make(), make(), make()
    train(whole, 8, made)
    train(first, 5, made)
    saved = first.state_dict()
    first.lr = 0.0
    train(first, 1, made)  # what was saved is a copy
    third = make()
    train(third, 5, made)
    for p, q in zip(second.params, third.params, strict=True):
        p.assign(q.numpy())
    second.load_state_dict(saved)
    assert second.steps == 5
    train(second, 3, made)
    np.testing.assert_array_equal(
        flat([p.data for p in second.params]), flat([p.data for p in whole.params])
    )


def test_what_is_saved_is_plain_numbers_and_arrays():
    optimizer = tg.Adam([{"params": params(), "lr": 0.5}], lr=lambda step: 0.1, amsgrad=True)
    train(optimizer, 2)
    saved = optimizer.state_dict()
    assert (saved["optimizer"], saved["steps"], saved["lr"]) == ("Adam", 2, [None, 0.5])
    arrays = {f"{n}.{k}": a for n, slots in saved["state"].items() for k, a in slots.items()}
    assert {type(a) for a in arrays.values()} == {np.ndarray}
    assert arrays["w.mean"].shape == (3, 2)
    assert arrays["b.beta1_power"] == pytest.approx(0.81)
    json.dumps({**saved, "state": [*arrays]})


def test_rates_are_loaded_and_schedules_stay():
    optimizer = tg.SGD([{"params": params()}], lr=0.5)
    optimizer.lr = 0.125
    saved = optimizer.state_dict()
    other = tg.SGD([{"params": params()}], lr=0.5)
    other.load_state_dict(saved)
    assert other.lr == 0.125
    scheduled = tg.SGD([{"params": params()}], lr=lambda step: 1.0 / (1 + step))
    saved["steps"] = 3
    scheduled.load_state_dict(saved)
    assert scheduled.lr == 0.25


def test_slots_are_read_and_assigned_by_name():
    x = tg.param([1.0, 2.0], name="x")
    optimizer = tg.SGD([x], lr=1.0, momentum=0.5)
    x.grad = [1.0, 1.0]
    optimizer.step()
    held = optimizer.state["x"]["momentum"].data
    optimizer.step()
    np.testing.assert_array_equal(held, [1.0, 1.0])
    np.testing.assert_array_equal(optimizer.state["x"]["momentum"].data, [1.5, 1.5])
    optimizer.state["x"]["momentum"].assign([0.0, 0.0])
    before = x.numpy()
    optimizer.step()
    np.testing.assert_array_equal(x.data, before - 1.0)
    with pytest.raises(TypeError):
        optimizer.state["x"]["momentum"] = np.zeros(2)


def changed(path, value):
    def change(saved):
        *folders, last = path
        for part in folders:
            saved = saved[part]
        if value is None:
            del saved[last]
        else:
            saved[last] = value

    return change


BAD_STATES = {
    "no dict": (None, TypeError, "list"),
    "a part missing": (changed(["steps"], None), ValueError, "no 'steps' among the entries"),
    "a part unknown": (changed(["more"], 1), ValueError, "'more', not known here"),
    "another class": (changed(["optimizer"], "AdamW"), ValueError, "the state of AdamW"),
    "steps": (changed(["steps"], -1), ValueError, "-1 for 'steps'"),
    "steps of a kind": (changed(["steps"], 1.5), ValueError, "1.5 for 'steps'"),
    "groups": (changed(["lr"], [0.1]), ValueError, "of 0 groups; expected 1 groups"),
    "a rate": (changed(["lr"], [0.1, -1.0]), ValueError, "lr=-1.0"),
    "a name missing": (changed(["state", "b"], None), ValueError, "no 'b' among the parameters"),
    "a name unknown": (changed(["state", "c"], {}), ValueError, "'c', not known here"),
    "a slot missing": (
        changed(["state", "b", "mean"], None),
        ValueError,
        "no 'mean' among the slots of 'b'",
    ),
    "slots of a kind": (changed(["state", "b"], [1.0]), TypeError, "slots of 'b'"),
    "a shape": (
        changed(["state", "b", "mean"], np.zeros(3)),
        ValueError,
        r"shape \(3,\) for 'mean' of 'b'; expected shape \(2,\)",
    ),
    "a dtype": (
        changed(["state", "b", "mean"], np.zeros(2, np.float32)),
        TypeError,
        "dtype float32 for 'mean' of 'b'; expected dtype float64",
    ),
    "no numbers": (changed(["state", "b", "mean"], "ab"), TypeError, "'b.mean'"),
}


@pytest.mark.parametrize("name", BAD_STATES)
def test_another_state_is_refused_and_nothing_changes(name):
    change, error, message = BAD_STATES[name]
    optimizer = tg.Adam(params(), lr=0.1)
    train(optimizer, 2)
    other = tg.Adam(params(), lr=0.2)
    train(other, 3)
    saved = other.state_dict()
    if change is None:
        saved = [saved]
    else:
        change(saved)
    before = optimizer.state_dict()
    with pytest.raises(error, match=f"Adam.load_state_dict: received.*{message}"):
        optimizer.load_state_dict(saved)
    np.testing.assert_equal(optimizer.state_dict(), before)
