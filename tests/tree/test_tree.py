"""`tg.tree` and `ravel_pytree`."""

from __future__ import annotations

from collections import OrderedDict, namedtuple

import numpy as np
import pytest

import tapegraph as tg

Line = namedtuple("Line", "slope height")
TREE = {"w": [1.0, (2.0, None)], "line": Line(3.0, {"k": 4.0}), "none": None, "empty": ()}


def test_leaves_in_order():
    assert tg.tree.leaves(TREE) == [1.0, 2.0, 3.0, 4.0]
    assert tg.tree.leaves(None) == []
    assert tg.tree.leaves(5.0) == [5.0]


def test_flatten_and_unflatten_are_inverse():
    leaves, structure = tg.tree.flatten(TREE)
    assert structure.num_leaves == 4
    assert structure.unflatten(leaves) == TREE
    made = tg.tree.unflatten(structure, "abcd")
    assert made["line"] == Line("c", {"k": "d"})
    assert type(made["line"]) is Line


def test_kinds_of_dicts_stay():
    made = tg.tree.map(lambda x: x + 1, OrderedDict(b=1, a=2))
    assert type(made) is OrderedDict
    assert list(made.items()) == [("b", 2), ("a", 3)]


@pytest.mark.parametrize(
    ("a", "b", "alike"),
    [
        ([1, 2], [3, 4], True),
        ({"a": 1, "b": 2}, {"b": 1, "a": 2}, True),
        ([1], (1,), False),
        (1, None, False),
        ([1], [1, 2], False),
        ({"a": 1}, {"b": 1}, False),
        (Line(1, 2), (1, 2), False),
    ],
)
def test_structures_compare(a, b, alike):
    one, other = tg.tree.structure(a), tg.tree.structure(b)
    assert (one == other) is alike
    assert not alike or hash(one) == hash(other)


def test_structure_shows_its_form():
    assert repr(tg.tree.structure(TREE)) == (
        "Structure({'w': [*, (*, None)], 'line': Line(slope=*, height={'k': *}), "
        "'none': None, 'empty': ()})"
    )


def test_map_over_several_trees():
    found = tg.tree.map(lambda x, y: (x, y), {"a": 1, "b": [2]}, {"b": [{"c": 3}], "a": 4})
    assert found == {"a": (1, 4), "b": [(2, {"c": 3})]}


def test_is_leaf():
    pair = lambda x: isinstance(x, tuple)  # noqa: E731
    assert tg.tree.map(len, {"a": (1, 2), "b": "xyz"}, is_leaf=pair) == {"a": 2, "b": 3}
    assert tg.tree.leaves([(1, 2), 3], is_leaf=pair) == [(1, 2), 3]
    assert tg.tree.map(lambda x, y: y, [(1, 2)], [5], is_leaf=pair) == [5]


@pytest.mark.parametrize(
    ("tree", "other", "place"),
    [({"a": [1, 2]}, {"a": [1]}, "rest[0]['a']"), ([None], [1], "rest[0][0]")],
)
def test_trees_that_differ(tree, other, place):
    with pytest.raises(ValueError, match="structure of the first tree") as caught:
        tg.tree.map(lambda x, y: x, tree, other)
    assert f"at {place};" in str(caught.value)


def test_another_number_of_leaves():
    with pytest.raises(ValueError, match=r"received 1 leaves; expected 2, as many as Structure"):
        tg.tree.unflatten(tg.tree.structure([1, 2]), [3])


def test_reduce_and_all():
    assert tg.tree.reduce(lambda a, b: a - b, TREE) == 1.0 - 2.0 - 3.0 - 4.0
    assert tg.tree.reduce(lambda a, b: a + [b], (1, 2), []) == [1, 2]
    assert tg.tree.all([True, {"a": 1}])
    assert not tg.tree.all([True, {"a": 0}])
    with pytest.raises(TypeError):
        tg.tree.reduce(max, [])


# ------------------------------------------------------------------ ravel_pytree


def test_vector_and_back():
    tree = {"w": np.arange(4, dtype=np.float32).reshape(2, 2), "n": np.array([7]), "b": 3.0}
    vector, unravel = tg.ravel_pytree(tree)
    assert vector.dtype == np.float64
    assert vector.tolist() == [0, 1, 2, 3, 7, 3]
    back = unravel(vector * 2)
    assert back["w"].dtype == np.float32
    assert back["w"].tolist() == [[0, 2], [4, 6]]
    assert back["n"].dtype == tree["n"].dtype
    assert type(back["b"]) is float


def test_complex_and_real_parts():
    vector, unravel = tg.ravel_pytree([1 + 2j, np.ones(2)])
    assert vector.dtype == np.complex128
    one, two = unravel(vector)
    assert one == 1 + 2j
    assert two.dtype == np.float64


def test_gradients_flow_through_both(backend):
    vector, unravel = tg.ravel_pytree({"w": np.ones((2, 2)), "b": 0.5})
    loss = lambda v: tg.sum(unravel(v)["w"] ** 2) * unravel(v)["b"]  # noqa: E731
    expected = [1.0, 1.0, 1.0, 1.0, 4.0]
    np.testing.assert_allclose(tg.grad(loss)(vector), expected, rtol=1e-15)
    w = tg.param([[1.0, 2.0]], dtype="float32")
    vector, _ = tg.ravel_pytree({"w": w, "b": 2.0})
    (vector**2).sum().backward()
    assert w.grad.tolist() == [[2.0, 4.0]]
    assert tg.vmap(lambda a: tg.ravel_pytree([a, 2 * a])[0])(np.ones((3, 2))).shape == (3, 4)


def test_vectors_of_another_length():
    _, unravel = tg.ravel_pytree([1.0, 2.0])
    with pytest.raises(ValueError, match=r"shape \(3,\); expected shape \(2,\)"):
        unravel(np.zeros(3))


def test_empty_trees():
    vector, unravel = tg.ravel_pytree({"a": None})
    assert vector.shape == (0,)
    assert unravel(vector) == {"a": None}
