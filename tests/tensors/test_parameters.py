"""The parameters of a model: names, ties, and everything that takes a model."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections import namedtuple
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pytest

import tapegraph as tg

Pair = namedtuple("Pair", ["w", "b"])


class Slotted:
    __slots__ = ("__weakref__", "unset", "w")

    def __init__(self, w):
        self.w = w


class Narrow(Slotted):
    __slots__ = "v"


@dataclasses.dataclass
class Linear:
    w: object
    b: object
    act: object = tg.relu
    name: str = "linear"


def p(value=1.0):
    return tg.param(value)


def names(model):
    return [*tg.parameters(model)]


def test_paths_are_keys_places_and_attributes():
    narrow = Narrow(p())
    narrow.v = p()
    model = SimpleNamespace(
        layers=[Linear(p(), p()), (p(), {"x": p()})],
        pair=Pair(p(), p()),
        mapping=MappingProxyType({"k": p()}),
        slots=narrow,
        value=tg.Value(1.0),
        _hidden=p(),
    )
    found = tg.parameters(model)
    assert [*found] == [
        "layers.0.w",
        "layers.0.b",
        "layers.1.0",
        "layers.1.1.x",
        "pair.w",
        "pair.b",
        "mapping.k",
        "slots.w",
        "slots.v",
        "value",
        "_hidden",
    ]
    assert found["layers.1.1.x"] is model.layers[1][1]["x"] and found["value"] is model.value
    assert found.tied == {}


def test_what_is_no_parameter_is_passed_over():
    w = p()
    held = SimpleNamespace(
        w=w, last=w * 2.0, mean=tg.tensor(0.0), table=np.ones(2), n=3, act=tg.tanh, module=np
    )
    held.kind, held.step = type(held), tg.compile(lambda x: x * w)
    held.optimizer = tg.Adam([w], lr=0.1)
    assert names(held) == ["w"]
    assert names({"a": [], "b": None, "c": {"rate": 0.1}, "d": (tg.tensor(1.0), w)}) == ["d.1"]


def test_two_names_of_one_parameter_are_tied():
    w, shared = p(), SimpleNamespace(w=p())
    model = SimpleNamespace(embed=w, first=shared, out={"w": w}, second=shared)
    found = tg.parameters(model)
    assert [*found] == ["embed", "first.w"]
    assert found.tied == {"out.w": "embed", "second.w": "first.w"}
    assert tg.parameters(found) == found  # and what is found is itself a model


def test_frozen_parameters_are_among_them_and_thaw(tmp_path):
    model = {"w": tg.param(np.ones(2)), "b": p(0.0), "mean": tg.tensor(1.0)}
    for on in (False, True):
        for leaf in tg.parameters(model).values():
            leaf.requires_grad_(on)
        assert [leaf.requires_grad for leaf in model.values()] == [on, on, False]
    target = copy.deepcopy(model)
    for leaf in tg.parameters(target).values():
        leaf.requires_grad_(False)
    model["w"].assign([3.0, 5.0])
    with tg.no_grad():  # the soft update of a target network
        for slow, fast in zip(*(tg.parameters(m).values() for m in (target, model)), strict=True):
            slow += 0.5 * (fast - slow)
    assert target["w"].data.tolist() == [2.0, 3.0]
    for other in (copy.deepcopy(target), pickle.loads(pickle.dumps(target))):
        assert names(other) == ["w", "b"] and not other["w"].requires_grad
        assert other["w"].data.tolist() == [2.0, 3.0]
    assert not np.sum(target["w"] * 2.0).requires_grad
    tg.save(tmp_path / "target.npz", target)
    assert [*tg.load(tmp_path / "target.npz")] == ["w", "b", "mean"]


def test_a_frozen_parameter_is_neither_clipped_nor_counted():
    model = {"w": p(), "table": p()}
    model["table"].requires_grad_(False)
    for leaf in model.values():
        leaf.grad = 2.0
    assert tg.clip_grad_norm(model, 1.0).item() == 2.0
    assert model["table"].grad == 2.0 and model["w"].grad < 1.0
    tg.zero_grad(model)
    assert model["table"].grad == 0.0


def test_objects_that_know_each_other_end():
    layers = [SimpleNamespace(w=p()) for _ in range(60)]
    for layer in layers:
        layer.others = layers  # as many paths as 60 factorial
    assert len(tg.parameters(layers)) == 60


def test_models_without_a_name_for_each_are_refused():
    w, v = p(), p()
    with pytest.raises(ValueError, match="parameters: received 2 parameters named 'a.b'"):
        tg.parameters({"a.b": w, "a": {"b": v}})
    with pytest.raises(TypeError, match="parameters: received 1 as a name"):
        tg.parameters({"a": {1: [w]}})
    with pytest.raises(TypeError, match=r"a result of mul at \['a'\]\[1\]"):
        tg.parameters({"a": [w, v * 1.0]})
    with pytest.raises(TypeError, match="Tensor .*; expected a dict, list, tuple or object"):
        tg.parameters(w)


# -- who takes a model ---------------------------------------------------------------------------


def model_and_list():
    rng = np.random.default_rng(3)
    w, b, v = rng.normal(size=(3, 2)), rng.normal(size=2), rng.normal(size=(2, 3))
    flat = [tg.param(x) for x in (w, b, v)]
    model = SimpleNamespace(
        layers=[Linear(tg.param(w), tg.param(b)), {"w": tg.param(v), "eps": 1e-5}], scale=2.0
    )
    model.layers.append(model.layers[0])  # tied
    return model, flat


def loss_of(w, b, v):
    return (tg.tanh(np.eye(3) @ w + b) @ v @ w + b).sum() ** 2


def test_a_model_is_trained_as_its_parameters_are(made):
    model, flat = model_and_list()
    optimizers = [
        tg.AdamW(params, lr=0.1, weight_decay=0.2) for params in (model, tg.parameters(model), flat)
    ]
    assert [*optimizers[0].state] == ["layers.0.w", "layers.0.b", "layers.1.w"]
    assert optimizers[1].params == optimizers[0].params
    for optimizer, params in ((optimizers[0], model), (optimizers[2], flat)):

        @made
        def step(optimizer=optimizer, params=params):
            tg.zero_grad(params)
            loss_of(*optimizer.params).backward()
            norm = tg.clip_grad_norm(params, 1.0)
            tg.clip_grad_value(params, 0.25)
            optimizer.step()
            return norm

        norms = [step().item() for _ in range(5)]
        assert min(norms) > 0.0
    for ours, theirs in zip(optimizers[0].params, flat, strict=True):
        np.testing.assert_array_equal(ours.data, theirs.data)


def test_models_are_groups_too():
    model, _ = model_and_list()
    groups = [
        {"params": {"first": model.layers[0]}, "lr": 0.5},
        {"params": model.layers[1:2], "weight_decay": 0.1},
    ]
    optimizer = tg.SGD(groups, lr=0.1)
    assert [group.names for group in optimizer.groups] == [["first.w", "first.b"], ["0.w"]]
    # Dicts with none of a group's words are layers.
    assert [*tg.SGD([{"w": p()}, {"w": p()}], lr=0.1).state] == ["0.w", "1.w"]
    assert [*tg.SGD((part for part in model.layers[:2]), lr=0.1).state][2] == "1.w"
    assert [*tg.SGD(Pair(p(), p()), lr=0.1).state] == ["w", "b"]


def test_a_dict_with_two_names_of_one_parameter_is_one():
    w = p(3.0)
    optimizer = tg.SGD({"a": w, "b": w}, lr=1.0)
    assert [*optimizer.state] == ["a"]
    w.grad = 1.0
    optimizer.step()
    assert w.item() == 2.0


@pytest.mark.parametrize("model", [SimpleNamespace(n=3), {"a": {"rate": 1.0}}, "text"])
def test_a_model_without_a_parameter_is_refused(model):
    for take in (lambda m: tg.SGD(m, lr=0.1), lambda m: tg.clip_grad_norm(m, 1.0)):
        with pytest.raises(TypeError, match="expected (a list of parameters|parameters made by)"):
            take(model)
