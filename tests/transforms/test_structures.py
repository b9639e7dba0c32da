"""Structures that belong together: dicts are paired by key, and other forms are refused."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pytest

import tapegraph as tg
from tapegraph import autograd
from tapegraph.autograd import core
from tapegraph.autograd.extend import defjvp, defvjp, primitive, vspace
from tapegraph.pytree import described, matched
from tests.quick import in_one

Line = namedtuple("Line", "slope height")
Size = namedtuple("Size", "width depth")
POINT = {"a": 1.0, "b": np.array([2.0, 3.0])}


def energy(p):
    """Of Hessian: 6 a by a, and 2 a by b; a by b is 2 b."""
    return p["a"] ** 3 + p["a"] * tg.sum(p["b"] ** 2)


def turned(p):
    return dict(reversed(p.items()))


# ------------------------------------------------------------------ dicts are paired by key


def test_hvp_pairs_by_key(backend):
    direction = {"a": 10.0, "b": np.array([1.0, -1.0])}
    wanted = {"a": 60.0 + 4.0 - 6.0, "b": 10.0 * 2 * POINT["b"] + 2.0 * direction["b"]}
    for tangent in (direction, turned(direction)):
        found = tg.hvp(energy, (POINT,), (tangent,))
        assert list(found) == ["a", "b"]
        assert found["a"] == wanted["a"]
        np.testing.assert_array_equal(found["b"], wanted["b"])


def moved(p, line):
    """Return several structures; the slopes are those in `test_jvp_pairs_by_key`."""
    found = {"cube": p["a"] ** 3, "product": [p["a"] * p["b"], (tg.sum(p["b"] ** 2), 7.0)]}
    return found, Line(line.slope * p["a"], -line.height)


@pytest.mark.parametrize("compiled", [False, True])
def test_jvp_pairs_by_key(compiled, backend):
    run = tg.compile(lambda *given: tg.jvp(moved, *given)) if compiled else partial(tg.jvp, moved)
    a, b, slope = 2.0, np.array([2.0, 3.0]), 5.0
    da, db, dslope, dheight = 10.0, np.array([1.0, -1.0]), 3.0, 0.5
    primals = ({"a": a, "b": b}, Line(slope, 4.0))
    for tangent in ({"a": da, "b": db}, {"b": db, "a": da}):
        for _ in range(3):
            values, tangents = run(primals, (tangent, [dslope, dheight]))
            assert list(values[0]) == list(tangents[0]) == ["cube", "product"]
            assert values[0]["product"][1] == (13.0, 7.0)
            assert values[1] == Line(10.0, -4.0)
            assert tangents[0]["cube"] == 3 * a**2 * da
            np.testing.assert_array_equal(tangents[0]["product"][0], da * b + a * db)
            assert tangents[0]["product"][1] == (2 * (b @ db), 0.0)
            assert tangents[1] == Line(dslope * a + slope * da, -dheight)
    _, along = tg.linearize(moved, *primals)
    both = zip(*map(tg.tree.leaves, (along(tangent, [dslope, dheight]), tangents)), strict=True)
    assert all(np.array_equal(a, b) for a, b in both)


def test_jvp_of_structures_within_other_levels():
    """The energy's third derivative, of which only that by a, a, a (6) and a, b, b (2) stay."""
    tangent = {"a": 2.0, "b": np.array([1.0, 0.5])}

    def along(p):
        return tg.jvp(energy, (p,), (tangent,))[1]

    found = tg.grad(lambda p: tg.jvp(along, (p,), (tangent,))[1])(POINT)
    assert found["a"] == 6.0 * 4.0 + 2.0 * 1.25
    np.testing.assert_array_equal(found["b"], 2 * 2.0 * 2.0 * tangent["b"])
    points = {"a": np.arange(3.0), "b": np.ones((3, 2))}
    each = tg.vmap(along)(points)
    np.testing.assert_array_equal(each, 2.0 * (3 * np.arange(3.0) ** 2 + 2) + 3.0 * np.arange(3.0))


def test_cotangents_are_paired_by_key(backend):
    value, pullback = tg.vjp(lambda x: {"square": x**2, "cube": (x**3, {"u": x, "v": 5 * x})}, 2.0)
    assert value == {"square": 4.0, "cube": (8.0, {"u": 2.0, "v": 10.0})}
    assert pullback({"cube": (10.0, {"v": 1.0, "u": 7.0}), "square": 100.0}) == 400 + 120 + 7 + 5


def test_pullbacks_of_the_drop_in_pair_by_key():
    vjp, _ = core.make_vjp(lambda x: {"square": x**2, "double": 2 * x}, 3.0)
    assert vjp({"double": 10.0, "square": 1.0}) == 26.0
    jvp = core.make_jvp(lambda p: p["a"] ** 2 + 5 * p["b"], {"a": 3.0, "b": 1.0})
    assert jvp({"b": 10.0, "a": 1.0}) == (14.0, 56.0)
    given = vjp(OrderedDict(double=10.0, square=1.0))
    assert given == 26.0


def test_vector_spaces_of_the_drop_in_pair_by_key():
    space = vspace({"a": np.zeros(2), "b": 1.0})
    x, y = {"a": np.array([1.0, 2.0]), "b": 3.0}, {"b": 10.0, "a": np.array([5.0, 7.0])}
    total = space.add(x, y)
    np.testing.assert_array_equal(total["a"], [6.0, 9.0])
    assert total["b"] == 13.0
    assert space.inner_prod(x, y) == 5.0 + 14.0 + 30.0
    assert space.scalar_mul(y, 2.0)["b"] == 20.0
    assert space == vspace(y)
    assert space != vspace({"a": 1.0, "b": np.zeros(2)})


@pytest.mark.parametrize("order", [dict, turned])
def test_rules_of_primitives_pair_by_key(order):
    @primitive
    def area(box):
        return box["width"] * box["depth"] ** 2

    box = {"width": 3.0, "depth": 5.0}
    defvjp(
        area,
        lambda ans, x: (
            lambda g: order(
                {"width": g * x["depth"] ** 2, "depth": 2 * g * x["width"] * x["depth"]}
            )
        ),
    )
    found = tg.grad(area)(box)
    assert found == {"width": 25.0, "depth": 30.0}

    @primitive
    def both(x):
        return {"square": x**2, "double": 2 * x}

    defjvp(both, lambda g, ans, x: order({"square": 2 * x * g, "double": 2 * g}))
    value, slope = core.make_jvp(both, 3.0)(1.0)
    assert value == {"square": 9.0, "double": 6.0}
    assert slope == {"square": 6.0, "double": 2.0}


def test_a_checkpoint_that_turns_its_results_round_pairs_by_key():
    calls = []

    def f(x):
        calls.append(x)
        parts = {"one": x * x, "other": x**3}
        return parts if len(calls) % 2 else turned(parts)

    x = tg.param(1.0)  # where the two are equal, and their derivatives are not
    out = tg.checkpoint(f)(x)
    (10.0 * out["one"] + out["other"]).backward()
    assert len(calls) == 2
    assert x.grad == 23.0


def test_a_jacobian_pairs_its_runs_by_key():
    calls = []

    def f(x):
        calls.append(x)
        parts = {"double": 2.0 * x, "triple": 3.0 * x}
        return parts if len(calls) % 2 else turned(parts)

    found = tg.jacobian(f, mode="forward")(np.ones(2))
    np.testing.assert_array_equal(found["double"], 2.0 * np.eye(2))
    np.testing.assert_array_equal(found["triple"], 3.0 * np.eye(2))


# ------------------------------------------------------------------ lists and tuples by place


def test_lists_and_tuples_are_paired_by_place():
    def f(p):
        return p[0] ** 2 * p[1]

    assert tg.hvp(f, ([2.0, 3.0],), ((1.0, 0.0),)) == [6.0, 4.0]
    assert tg.hvp(lambda p: f(p), (Line(2.0, 3.0),), ((1.0, 0.0),)) == Line(6.0, 4.0)


# ------------------------------------------------------------------ other structures are refused

FORM = {"w": (1.0, 2.0), "b": 3.0}
OTHERS = {
    "foreign key": ({"w": (1.0, 2.0), "c": 3.0}, "{'w': (*, *), 'c': *}", ""),
    "missing key": ({"w": (1.0, 2.0)}, "{'w': (*, *)}", ""),
    "further key": ({"w": (1.0, 2.0), "b": 3.0, "c": 1.0}, "{'w': (*, *), 'b': *, 'c': *}", ""),
    "shorter": ({"w": (1.0,), "b": 3.0}, "{'w': (*,), 'b': *}", "['w']"),
    "list for number": ({"w": (1.0, 2.0), "b": [3.0]}, "{'w': (*, *), 'b': [*]}", "['b']"),
    "number for tuple": ({"w": 1.0, "b": 3.0}, "{'w': *, 'b': *}", "['w']"),
    "array for tuple": ({"w": np.ones(2), "b": 3.0}, "{'w': *, 'b': *}", "['w']"),
    "None for tuple": ({"w": None, "b": 3.0}, "{'w': None, 'b': *}", "['w']"),
    "a tuple": ((1.0, 2.0, 3.0), "(*, *, *)", ""),
}


def same(p):
    return {"w": (2 * p["w"][0], 3 * p["w"][1]), "b": p["b"] * p["w"][0]}


CALLS = {
    "hvp": (
        lambda given: tg.hvp(lambda p: sum(same(p)["w"]) * p["b"], (FORM,), (given,)),
        "tangents[0]",
        "primals[0]",
    ),
    "jvp": (lambda given: tg.jvp(same, (FORM,), (given,)), "tangents[0]", "primals[0]"),
    "vjp": (lambda given: tg.vjp(same, FORM)[1](given), "the cotangent", "the function's result"),
    "make_vjp": (
        lambda given: core.make_vjp(same, FORM)[0](given),
        "the direction",
        "the function's result",
    ),
    "make_jvp": (
        lambda given: core.make_jvp(same, FORM)(given),
        "the direction",
        "the argument",
    ),
    "vspace": (lambda given: vspace(FORM).add(FORM, given), "the element", "the space"),
}


# As autograd: an array of the right length is the tuple, and None the cotangent of nothing.
TAKEN = {
    ("make_vjp", "array for tuple"): {"w": (11.0, 3.0), "b": 3.0},
    ("make_vjp", "None for tuple"): {"w": (9.0, 0.0), "b": 3.0},
}


@in_one("call", CALLS)
@in_one("other", OTHERS)
def test_another_structure_is_refused_with_both_spelled_out(call, other):
    run, argument, of = CALLS[call]
    given, spelled, place = OTHERS[other]
    if (call, other) in TAKEN:
        assert run(given) == TAKEN[call, other]
        return
    with pytest.raises(ValueError, match="structure") as caught:
        run(given)
    message = str(caught.value)
    assert f"{call}: received {argument} of structure {spelled}; " in message
    assert f"expected the structure of {of}, {{'w': (*, *), 'b': *}}." in message
    assert f"They differ at {argument}{place}:" in message
    assert "test_structures.py" in message


def test_none_for_a_number_is_refused_by_its_place():
    given = {"b": 3.0, "w": (1.0, None)}
    with pytest.raises(TypeError, match=r"hvp.*None.*tangents\[0\]\['w'\]\[1\]"):
        tg.hvp(lambda p: p["b"] * sum(p["w"]), (FORM,), (given,))
    with pytest.raises(TypeError, match=r"vjp.*None.*the cotangent\['w'\]\[1\]"):
        tg.vjp(same, FORM)[1](given)


def test_rules_that_give_another_structure_are_refused():
    @primitive
    def area(box):
        return box["width"] * box["depth"]

    defvjp(area, lambda ans, x: lambda g: {"width": g, "height": g})
    with pytest.raises(ValueError, match=r"area.*\{'width': \*, 'height': \*\}.*argument 0"):
        tg.grad(area)({"width": 3.0, "depth": 5.0})

    @primitive
    def both(x):
        return {"square": x**2, "double": 2 * x}

    defjvp(both, lambda g, ans, x: {"square": 2 * x * g})
    with pytest.raises(ValueError, match=r"both.*the tangent of structure \{'square': \*\}"):
        core.make_jvp(both, 3.0)(1.0)


def test_named_tuples_of_other_fields_are_refused():
    with pytest.raises(
        ValueError, match=r"Size\(width=\*, depth=\*\).*Line\(slope=\*, height=\*\)"
    ):
        list(matched("f", Size(1, 2), Line(1, 2), "x", "y"))


def test_a_large_structure_is_cut_short():
    text = described({f"layer{i}": (1.0, 2.0) for i in range(100)})
    assert len(text) < 310
    assert text.startswith("{'layer0': (*, *), 'layer1'")
    assert text.endswith("...")


# ------------------------------------------------------------------ dicts of other classes


class Named(dict):
    """A dict whose constructor takes something else."""

    def __init__(self, title):
        super().__init__()
        self.title = title


def named():
    made = Named("weights")
    made.update(w=3.0, b=2.0)
    return made


@pytest.mark.parametrize(
    "make",
    [lambda: defaultdict(float, w=3.0, b=2.0), lambda: OrderedDict(w=3.0, b=2.0), named],
    ids=["defaultdict", "OrderedDict", "own"],
)
def test_dicts_of_other_classes_stay_what_they_are(make):
    def f(p):
        assert type(p) is type(make())
        return p["w"] ** 2 * p["b"]

    given = make()
    found = tg.grad(f)(given)
    assert type(found) is type(given)
    assert found == {"w": 12.0, "b": 9.0}
    assert given == {"w": 3.0, "b": 2.0}
    assert vars(found) == vars(given) if isinstance(given, Named) else True
    assert tg.hvp(f, (given,), ({"b": 0.0, "w": 1.0},)) == {"w": 4.0, "b": 6.0}
    assert tg.hessian(f)(given)["w"]["b"] == 6.0


def test_a_default_that_is_read_is_a_constant():
    def f(p):
        return p["w"] ** 2 + p["absent"]

    given = defaultdict(lambda: 5.0, w=3.0)
    assert tg.value_and_grad(f)(given) == (14.0, {"w": 6.0})
    assert dict(given) == {"w": 3.0}


# ------------------------------------------------------------------ dataclasses


@dataclass(frozen=True)
class Layer:
    weight: object
    bias: object

    def __post_init__(self):  # what copies of tensors or of gradients may break
        if not isinstance(self.weight, (float, np.ndarray)) or np.any(np.asarray(self.weight) < 0):
            raise TypeError("a weight is an array of positive numbers")

    def __call__(self, x):
        return self.weight * x + self.bias


@dataclass(slots=True)
class Network:
    first: Layer
    others: list
    scale: float = 2.0


NETWORK = Network(Layer(np.array([1.0, 2.0]), 0.5), [Layer(3.0, -1.0)])
INPUT = np.array([1.0, -2.0])


def output(network, x):
    return tg.sum(network.others[0](network.first(x)) * network.scale)


def as_dict(network):
    """Return the numbers of a network in plain containers."""
    layers = [{"weight": x.weight, "bias": x.bias} for x in (network.first, *network.others)]
    return {"first": layers[0], "others": layers[1:], "scale": network.scale}


def output_of_dict(p, x):
    for layer in (p["first"], *p["others"]):
        x = layer["weight"] * x + layer["bias"]
    return tg.sum(x * p["scale"])


DOUBLED = tg.tree.map(lambda x: 2 * x, NETWORK)
OF_DATACLASSES = {
    "grad": lambda f, p, q: tg.grad(f)(p, INPUT),
    "jvp": lambda f, p, q: tg.jvp(lambda p: f(p, INPUT), (p,), (q,)),
    "linearize": lambda f, p, q: tg.linearize(lambda p: f(p, INPUT), p)[1](q),
    "hvp": lambda f, p, q: tg.hvp(lambda p: f(p, INPUT), (p,), (q,)),
    "hessian": lambda f, p, q: tg.hessian(lambda p: f(p, INPUT))(p),
    "vmap": lambda f, p, q: tg.vmap(f, (None, 0))(p, np.stack([INPUT, 2 * INPUT])),
    "checkpoint": lambda f, p, q: tg.grad(tg.checkpoint(f))(p, INPUT),
    "compile": lambda f, p, q: [tg.compile(tg.grad(f))(p, INPUT) for _ in range(4)],
    "scan": lambda f, p, q: tg.scan(lambda c, x: (c, (f(c, x), c)), p, np.stack([INPUT, INPUT])),
    "cond": lambda f, p, q: tg.cond(f(p, INPUT) > 0, lambda p, q: p, lambda p, q: q, p, q),
}


@in_one("of", OF_DATACLASSES)
def test_a_dataclass_is_the_dict_of_its_fields(of):
    run = OF_DATACLASSES[of]
    found = run(output, NETWORK, DOUBLED)
    expected = run(output_of_dict, as_dict(NETWORK), as_dict(DOUBLED))
    assert "Network(first=Layer(" in str(found) or of in ("jvp", "linearize", "vmap")
    pairs = zip(tg.tree.leaves(found), tg.tree.leaves(expected), strict=True)
    assert all(np.array_equal(a, b) and type(a) is type(b) for a, b in pairs)


def test_axes_of_a_dataclass():
    networks = replace(NETWORK, scale=np.array([1.0, 2.0, -1.0]))
    for axes in (Network(None, None, 0), replace(tg.tree.map(lambda _: None, NETWORK), scale=0)):
        found = tg.vmap(output, (axes, None))(networks, INPUT)
        np.testing.assert_array_equal(found, output(NETWORK, INPUT) / 2 * networks.scale)
    with pytest.raises(ValueError, match=r"in_axes\[0\]=Layer\(weight=\*, bias=\*\)"):
        tg.vmap(output, (Layer(0.0, 0.0), None))(networks, INPUT)


def test_a_dataclass_of_parameters_trains(backend):
    model, twin = (tg.tree.map(tg.param, NETWORK) for _ in range(2))
    optimizer, other = tg.SGD(model, lr=1e-3), tg.SGD(twin, lr=1e-3)

    @tg.compile
    def step(network, x):
        optimizer.zero_grad()
        loss = output(network, x) ** 2
        loss.backward()
        optimizer.step()
        return replace(network, scale=loss)

    for n in range(1, 5):
        other.zero_grad()
        loss = output(twin, n * INPUT) ** 2
        loss.backward()
        other.step()
        left = step(model, n * INPUT)
        assert type(left) is Network
        np.testing.assert_allclose(left.scale, loss, rtol=1e-12)
    for a, b in zip(tg.tree.leaves(model), tg.tree.leaves(twin), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    assert step.traces == 1


def test_another_dataclass_is_refused_by_its_place():
    other = Network(NETWORK.first, [Layer(3.0, [1.0])])
    with pytest.raises(ValueError, match=r"differ at tangents\[0\]\.others\[0\]\.bias:"):
        tg.jvp(output, (NETWORK, INPUT), (other, INPUT))
    with pytest.raises(ValueError, match=r"received the cotangent of structure Layer\(weight=\*, "):
        tg.vjp(lambda p: p, NETWORK)[1](NETWORK.first)
    with pytest.raises(TypeError, match=r"'a' for 'argument 0\.others\[0\]'"):
        tg.grad(output)(Network(NETWORK.first, ["a"]), INPUT)


def test_what_a_dataclass_computes_is_no_field():
    """Or the derivative by ``weight`` would leave out the way through ``inverse``."""

    @dataclass
    class Computed:
        weight: float
        inverse: float = field(init=False, default=1.0)

    with pytest.raises(TypeError, match="Computed"):
        tg.grad(lambda p: p.weight * p.inverse)(Computed(2.0))
    assert tg.tree.leaves(held := Computed(2.0)) == [held]


# ------------------------------------------------------------------ None and static fields


def static(**options):
    return field(metadata={"static": True}, **options)


@dataclass
class Model:
    w: object
    b: object = None
    act: object = static(default=np.tanh)
    depth: object = static(default=2)

    def __call__(self, x):
        for _ in range(self.depth):
            x = self.act(self.w * x)
        return np.sum(x)


def of_dict(p, x):
    return np.sum(np.tanh(p["w"] * np.tanh(p["w"] * x)))


MODEL, ALONG = Model(np.array([0.5, -1.5])), Model(np.array([2.0, 1.0]))
OF_MODELS = {
    **{of: OF_DATACLASSES[of] for of in ("grad", "jvp", "hvp", "hessian", "vmap", "checkpoint")},
    **{of: OF_DATACLASSES[of] for of in ("compile", "scan")},
    "value_and_grad": lambda f, p, q: tg.value_and_grad(f)(p, INPUT),
    "vjp": lambda f, p, q: tg.vjp(lambda p: (f(p, INPUT), None), p)[1]((1.0, None)),
    "linearize": lambda f, p, q: tg.linearize(lambda p: (f(p, INPUT), p), p)[1](q),
    "jacrev": lambda f, p, q: tg.jacrev(lambda p: (f(p, INPUT), p))(p),
    "jacfwd": lambda f, p, q: tg.jacfwd(lambda p: (f(p, INPUT), p))(p),
    "vmap of it": lambda f, p, q: tg.vmap(lambda p, none: (f(p, 1.0), p, none))(p, None),
    "cond": lambda f, p, q: tg.cond(True, lambda p: (f(p, INPUT), p), lambda p: (0.0, p), p),
    "while": lambda f, p, q: tg.while_loop(
        lambda p: f(p, 9.0) < 1, lambda p: tg.tree.map(abs, p), p
    ),
}


@in_one("of", OF_MODELS)
def test_none_and_static_fields_have_no_leaves(of):
    found = OF_MODELS[of](Model.__call__, MODEL, ALONG)
    expected = OF_MODELS[of](of_dict, {"w": MODEL.w}, {"w": ALONG.w})
    pairs = zip(tg.tree.leaves(found), tg.tree.leaves(expected), strict=True)
    assert all(np.array_equal(a, b) and type(a) is type(b) for a, b in pairs)
    parts = tg.tree.leaves(found, is_leaf=lambda x: isinstance(x, Model))
    models = [x for x in parts if isinstance(x, Model)]
    assert models or of in ("jvp", "vmap")
    assert all((x.b, x.act, x.depth) == (None, np.tanh, 2) for x in models)


def test_a_gradient_has_none_where_the_argument_has():
    given = {"a": 3.0, "b": None, "c": [None, 2.0]}
    found = tg.grad(lambda p: p["a"] ** 2 * p["c"][1])(given)
    assert found == {"a": 12.0, "b": None, "c": [None, 9.0]}
    assert tg.grad(lambda p: 1.0)({"b": None}) == {"b": None}
    with pytest.raises(ValueError, match=r"differ at tangents\[0\]\['b'\]"):
        tg.jvp(lambda p: p["a"], (given,), ({**given, "b": 1.0},))


@pytest.mark.parametrize(
    "call",
    [
        lambda: tg.scan(lambda c, x: ((None, c[1]), x), (1.0, 2.0), np.ones(3)),
        lambda: tg.cond(True, lambda x: (x, None), lambda x: (x, x), 1.0),
        lambda: tg.scan(lambda c, x: ((c[1], c[1]), x), (None, 2.0), np.ones(3)),
        lambda: tg.scan(lambda c, x: (replace(c, depth=3), x), MODEL, np.ones(3)),
    ],
)
def test_a_loop_keeps_nones_and_static_fields(call):
    with pytest.raises(TypeError, match=r"None for the |\(None, \*\)|depth=3\).*depth=2\)"):
        call()


def test_static_fields_are_compared():
    other = replace(ALONG, depth=1)
    with pytest.raises(ValueError, match=r"depth=1\); expected.* primals\[0\], Model.*depth=2\)"):
        tg.jvp(lambda p: p(INPUT), (MODEL,), (other,))
    assert tg.tree.structure(MODEL) == tg.tree.structure(ALONG) != tg.tree.structure(other)
    shown = repr(tg.tree.structure(replace(MODEL, act=None)))
    assert shown == "Structure(Model(w=*, b=None, act=None, depth=2))"


def test_compile_keys_static_fields_by_value(backend):
    step = tg.compile(lambda p, x: (p(x) * 2.0, replace(p, w=p.w + 1.0)))
    for depth, act, traces in [(1, np.tanh, 1), (1, np.sin, 2), (2, np.sin, 3), (1, np.tanh, 3)]:
        for _ in range(3):
            total, moved = step(Model(np.ones(2), None, act, depth), INPUT)
            expected = act(INPUT) if depth == 1 else act(act(INPUT))
            np.testing.assert_allclose(total, 2.0 * np.sum(expected), rtol=1e-14)
            assert (moved.w.data.tolist(), moved.act, moved.depth) == ([2.0, 2.0], act, depth)
        assert step.traces == traces
    kinds = tg.compile(lambda p: p.w * p.depth[0])
    assert [kinds(Model(np.int64(3), depth=(d,))).dtype.kind for d in (1, 1.0, True)] == list("ifi")
    with pytest.raises(TypeError, match=r"list \[1\] for args\[0\]\.depth.*hashed.*tuple"):
        step(Model(np.ones(2), depth=[1]), INPUT)


def test_a_static_field_may_be_computed():
    @dataclass
    class Sized:
        w: object
        n: int = static(init=False)

        def __post_init__(self):
            self.n = len(self.w)

    found = tg.grad(lambda p: np.sum(p.w**2) * p.n)(Sized(np.array([1.0, 2.0])))
    assert (found.w.tolist(), found.n) == ([4.0, 8.0], 2)


@dataclass
class Plain:
    w: object
    other: object


@pytest.mark.parametrize("other", ["relu", np.tanh, True, 3, np.arange(2)], ids=str)
def test_what_is_no_float_in_a_structure_is_refused_with_what_to_write(other):
    def f(p):
        w = p["w"] if isinstance(p, dict) else p.w
        return np.sum(w * w)

    calls = {
        "argument 0": [tg.grad(f), tg.jacobian(f), tg.hessian(f)],
        "primals[0]": [
            lambda p: tg.vjp(f, p),
            lambda p: tg.linearize(f, p),
            lambda p: tg.jvp(f, (p,), (p,)),
            lambda p: tg.hvp(f, (p,), (p,)),
        ],
    }
    if isinstance(other, str) or callable(other):
        calls["args[0]"] = [tg.vmap(f)]
        calls["init"] = [lambda p: tg.scan(lambda c, x: (c, x), p, np.ones(3))]
    parts = {"w": np.ones(2), "other": other}
    places = [(Plain(**parts), ".other")]
    if "init" in calls:
        places.append((parts, "['other']"))
    else:  # in a dict they are numbers of the user's
        assert tg.grad(f)(parts)["w"].tolist() == [2.0, 2.0]
    for path, several in calls.items():
        for call in several:
            for given, place in places:
                with pytest.raises(TypeError, match="lose over it, or .* static field") as caught:
                    call(given)
                assert path + place in str(caught.value)


def test_whole_numbers_alone_and_in_the_drop_in_are_floats():
    assert tg.grad(lambda x: x**3)(3) == 27.0
    assert tg.vjp(lambda x, y: x * y, 3, 4)[1](1) == (4.0, 3.0)
    assert tg.jvp(lambda x: x**3, (3,), (1,)) == (27.0, 27.0)
    found = autograd.grad(lambda p: p["n"] ** 2 * np.sum(p["k"]))({"n": 3, "k": np.array([1, 2])})
    assert found["n"] == 18.0
    assert found["k"].tolist() == [9.0, 9.0]


def test_an_index_that_is_differentiated_is_to_be_closed_over():
    calls = [
        lambda: tg.vjp(lambda x, i: x[i], np.ones(3), 2),
        lambda: tg.jvp(lambda x, i: x[i], (np.ones(3), 2), (np.ones(3), 0)),
        lambda: tg.linearize(lambda x, i: x[i], np.ones(3), np.array([0, 2])),
        lambda: tg.vjp(lambda x, i: np.take(x, i), np.ones(3), 2),
        lambda: tg.grad(lambda n: sum(n for _ in range(n)))(3),
        lambda: tg.jvp(lambda n: sum(n for _ in range(n)), (3,), (1,)),
    ]
    for call in calls:
        with pytest.raises((TypeError, IndexError), match=r"Close over an index, tg.vjp\(lambda"):
            call()
    with pytest.raises(IndexError, match=r"integer indices\. Use \.astype\(int\)\."):
        tg.tensor([1.0])[np.array([0.0])]


# ------------------------------------------------------------------ auxiliary results


def and_more(x):
    return np.sum(x**3), {"double": [2.0 * x, None], "text": "t"}


@pytest.mark.parametrize("as_tensor", [False, True])
def test_auxiliary_results(as_tensor):
    x = np.array([1.0, -2.0])
    given = tg.tensor(x) if as_tensor else x
    value, pullback, of_vjp = tg.vjp(and_more, given, has_aux=True)
    assert (value.item(), pullback(2.0).tolist()) == (-7.0, [6.0, 24.0])
    *pair, of_jvp = tg.jvp(and_more, (given,), (np.ones(2),), has_aux=True)
    assert [part.item() for part in pair] == [-7.0, 15.0]
    value, push, of_linearize = tg.linearize(and_more, given, has_aux=True)
    assert (value.item(), push(np.ones(2)).item()) == (-7.0, 15.0)
    second, of_hessian = tg.hessian(and_more, has_aux=True)(given)
    assert second.tolist() == [[6.0, 0.0], [0.0, -12.0]]
    found = [of_vjp, of_jvp, of_linearize, of_hessian]
    for transform in (tg.jacobian, tg.jacrev, tg.jacfwd):
        rows, aux = transform(and_more, has_aux=True)(given)
        assert rows.tolist() == [3.0, 12.0]
        found.append(aux)
    for aux in found:
        (double, none), text = aux["double"], aux["text"]
        assert (double.tolist(), none, text) == ([2.0, -4.0], None, "t")
        assert type(double) is type(given)
    with pytest.raises(TypeError, match=r"has_aux=True, f must return \(result, aux\), not a Dual"):
        tg.jacfwd(np.sin, has_aux=True)(x)


AUX = {
    "vjp": lambda f, x: tg.vjp(f, x, has_aux=True)[2],
    "jvp": lambda f, x: tg.jvp(f, (x,), (np.ones(2),), has_aux=True)[2],
    "jacrev": lambda f, x: tg.jacrev(f, has_aux=True)(x)[1],
    "jacfwd": lambda f, x: tg.jacfwd(f, has_aux=True)(x)[1],
    "linearize": lambda f, x: tg.linearize(f, x, has_aux=True)[2],
    "hessian": lambda f, x: tg.hessian(f, has_aux=True)(x)[1],
}


@in_one("of", AUX)
def test_outer_derivatives_flow_through_auxiliary_results(of):
    """Of ``sum(z x * z)``, whose derivatives are ``2 z sum(x)`` and ``2 sum(x)``."""
    x = np.array([1.0, 3.0])

    def outer(z):
        return np.sum(AUX[of](lambda y: (np.sum(y**3), y * z), x * z))

    assert tg.grad(outer)(5.0) == 40.0
    assert tg.jvp(outer, (5.0,), (1.0,)) == (100.0, 40.0)
    assert tg.grad(tg.grad(outer))(5.0) == 8.0
    assert tg.vmap(tg.grad(outer))(np.array([5.0, 1.0])).tolist() == [40.0, 8.0]


# ------------------------------------------------------------------ positions from the end


@pytest.mark.parametrize("transform", [tg.grad, tg.jacobian, tg.elementwise_grad])
def test_negative_argnums_count_from_the_end(transform):
    f = lambda x, y: x * y**2  # noqa: E731
    assert transform(f, -1)(2.0, 3.0) == 12.0
    assert transform(f, (-1, 0, -2))(2.0, 3.0) == (12.0, 9.0, 9.0)
    assert transform(lambda x: x**2, [0, -1])(3.0) == [6.0, 6.0]
    assert tg.hessian(f, (-1, 0))(2.0, 3.0) == ((4.0, 6.0), (6.0, 0.0))
