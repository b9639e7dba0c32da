"""What is saved comes back, by itself and into a model; what does not belong is refused."""

from __future__ import annotations

import importlib.util
import json
import os
import stat
import struct
import sys
from collections import OrderedDict, namedtuple
from types import SimpleNamespace

import numpy as np
import pytest

import tapegraph as tg

needs_safetensors = pytest.mark.skipif(
    importlib.util.find_spec("safetensors") is None, reason="needs the extra io"
)
SUFFIXES = ["safetensors", "npz"]
EXCHANGED = [pytest.param("safetensors", marks=needs_safetensors), "npz"]
DTYPES = "? i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8 c8".split()


@pytest.fixture(params=SUFFIXES)
def path(request, tmp_path):
    return str(tmp_path / f"run.{request.param}")


def raw(header, body=b"", length=None):
    """The bytes of a .safetensors file."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def array(dtype="F64", shape=(1,), offsets=(0, 8)):
    """What such a file says of an array."""
    return {"dtype": dtype, "shape": [*shape], "data_offsets": [*offsets]}


def same(a, b):
    """Whether two trees are one and the same to the bit, their types too."""
    assert type(a) is type(b), (a, b)
    if isinstance(a, dict):
        assert [*a] == [*b]
        assert all(same(a[key], b[key]) for key in a)
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b) and all(map(same, a, b))
    elif isinstance(a, np.ndarray):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert a.tobytes() == b.tobytes()
    else:
        assert a == b or a != a
    return True


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_of_every_dtype_and_layout_come_back(path, dtype):
    rng = np.random.default_rng(0)
    whole = (rng.normal(size=(4, 6)) * 50).astype(dtype)
    arrays = {
        "whole": whole,
        "fortran": np.asfortranarray(whole),
        "transposed": whole.T,
        "strided": whole[::2, ::-3],
        "0-d": whole[0, 0, ...],
        "empty": whole[:0],
        "swapped": whole.astype(whole.dtype.newbyteorder(">")),
        "broadcast": np.broadcast_to(whole[0], (3, 6)),
    }
    expected = {name: np.array(a, whole.dtype, order="C") for name, a in arrays.items()}
    tg.save(path, arrays)
    loaded = tg.load(path)
    assert same(loaded, expected)
    for array in loaded.values():
        array[...] = 0  # and may be written to


@pytest.mark.parametrize("suffix", EXCHANGED)
def test_other_programs_read_what_is_saved(tmp_path, suffix):
    path = str(tmp_path / f"run.{suffix}")
    tree = {"model": {"w": tg.param([[1.0, 2.0]]), "ids": np.arange(3)[::-1]}, "epoch": 3}
    tg.save(path, tree, {"licence": "ours"})
    if path.endswith("npz"):
        with np.load(path, allow_pickle=False) as found:
            arrays = {name: found[name] for name in found}
            text = json.loads(arrays.pop("__metadata__").tobytes())
    else:
        from safetensors import safe_open

        with safe_open(path, framework="np") as found:
            arrays, text = {name: found.get_tensor(name) for name in found.keys()}, found.metadata()
    assert same(
        dict(sorted(arrays.items())),
        {"model.ids": np.array([2, 1, 0]), "model.w": np.array([[1.0, 2.0]])},
    )
    assert text["licence"] == "ours"
    assert tg.load(path, return_metadata=True)[1] == {"licence": "ours"}


@pytest.mark.parametrize("suffix", EXCHANGED)
def test_what_other_programs_write_is_read(tmp_path, suffix):
    path = str(tmp_path / f"run.{suffix}")
    arrays = {"a.w": np.ones((2, 2)), "b": np.arange(3.0)}
    if path.endswith("npz"):
        np.savez_compressed(path, **arrays)
    else:
        from safetensors.numpy import save_file

        save_file(arrays, path, {"format": "pt"})
    tree, text = tg.load(path, return_metadata=True)
    assert same(dict(sorted(tree.items())), arrays)
    assert text == ({} if path.endswith("npz") else {"format": "pt"})
    model = SimpleNamespace(a={"w": tg.param(np.zeros((2, 2)))}, b=tg.param(np.zeros(3)))
    tg.load(path, into=model)
    assert same(model.b.numpy(), arrays["b"]) and same(model.a["w"].numpy(), arrays["a.w"])


@needs_safetensors
def test_safetensors_of_every_dtype_are_the_packages(tmp_path):
    from safetensors.numpy import load_file, save_file

    rng = np.random.default_rng(0)
    arrays = {f"{d}.ä\n": (rng.normal(size=(3, 5)) * 50).astype(d) for d in DTYPES}
    arrays |= {"0-d": np.array(1.5), "empty": np.zeros((0, 3)), "": np.ones(2, np.int8)}
    tg.save(tmp_path / "ours.safetensors", arrays, {"who": "ours 漢😀"})
    save_file(arrays, tmp_path / "theirs.safetensors", {"who": "theirs"})
    ours = load_file(tmp_path / "ours.safetensors")
    theirs, text = tg.load(tmp_path / "theirs.safetensors", return_metadata=True)
    for found in (ours, theirs):
        assert same({name: found[name] for name in arrays}, arrays) and len(found) == len(arrays)
    assert text == {"who": "theirs"}


def test_safetensors_need_no_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    tg.save(tmp_path / "run.safetensors", {"w": np.ones(2)})
    assert same(tg.load(tmp_path / "run.safetensors"), {"w": np.ones(2)})


def bfloat16(bits):
    """The numbers that bfloat16 means by its bits, from the definition of the format."""
    sign = np.where(bits & 0x8000, -1.0, 1.0)
    exponent, fraction = (bits >> 7 & 0xFF).astype(int), (bits & 0x7F) / 128.0
    scale = np.ldexp(1.0, np.where(exponent == 0, 1, exponent) - 127)
    finite = sign * scale * (fraction + (exponent > 0))
    special = np.where(fraction > 0, np.nan, sign * np.inf)
    return np.where(exponent == 255, special, finite).astype(np.float32)


def test_bfloat16_is_read_as_float32(tmp_path):
    path = tmp_path / "hub.safetensors"
    bits = np.arange(1 << 16, dtype="<u2").reshape(256, 256)
    path.write_bytes(raw({"w": array("BF16", (256, 256), (0, 1 << 17))}, bits.tobytes()))
    expected = bfloat16(bits)
    found = tg.load(path)["w"]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected) | (bits >= 0x8000))
    model = {"w": tg.param(np.zeros((256, 256), np.float32))}
    tg.load(path, into=model)
    np.testing.assert_array_equal(model["w"].data, expected)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_half_precision_is_kept_in_files(tmp_path, kind):
    path = tmp_path / "half.safetensors"
    dtype = np.float16 if kind == "float16" else pytest.importorskip("ml_dtypes").bfloat16
    half = np.array([[0.1, -3.0], [1e-7, 60000.0]]).astype(dtype)
    tg.save(path, {"w": half, "columns": half.T, "scalar": half[0, 0]})
    theirs = pytest.importorskip("safetensors.numpy").load_file(path)
    assert {name: array.dtype for name, array in theirs.items()} == dict.fromkeys(theirs, dtype)
    np.testing.assert_array_equal(theirs["columns"], half.T)
    found = tg.load(path)
    np.testing.assert_array_equal(found["w"].astype(np.float64), half.astype(np.float64))
    assert found["scalar"] == half[0, 0]
    # It goes into float32, which holds its numbers, and back into what was saved.
    model = {"w": tg.param(np.zeros((2, 2), np.float32)), "columns": np.zeros((2, 2), dtype)}
    tg.load(path, into=model)
    assert model["w"].dtype == np.float32
    np.testing.assert_array_equal(model["w"], half.astype(np.float32))
    np.testing.assert_array_equal(model["columns"], half.T)
    with pytest.raises(TypeError, match="expected dtype float64"):
        tg.load(path, into={"w": np.zeros((2, 2)), "columns": np.zeros((2, 2), dtype)})
    tg.save(path, {"w": np.zeros(1, np.float32)})
    with pytest.raises(TypeError, match=f"dtype float32 for 'w'; expected dtype {kind}"):
        tg.load(path, into={"w": np.zeros(1, dtype)})


def test_bfloat16_is_refused_where_numpy_could_not_read_it(tmp_path):
    half = np.zeros(1, pytest.importorskip("ml_dtypes").bfloat16)
    with pytest.raises(TypeError, match=r"bfloat16 for 'w'.*Save as .safetensors"):
        tg.save(tmp_path / "half.npz", {"w": half})
    with pytest.raises(TypeError, match="dtype float8_e4m3fn for 'w'"):
        narrow = pytest.importorskip("ml_dtypes").float8_e4m3fn
        tg.save(tmp_path / "narrow.safetensors", {"w": np.zeros(1, narrow)})


def test_an_array_that_others_call_metadata_is_an_array(tmp_path):
    path = tmp_path / "theirs.npz"
    for held in (np.ones(3), np.arange(5, dtype=np.uint8), np.frombuffer(b"[1]", np.uint8)):
        np.savez(path, **{"__metadata__": held, "w": np.ones(2)})
        assert same(tg.load(path), {"__metadata__": held, "w": np.ones(2)})


def test_the_suffix_may_be_in_capitals(tmp_path):
    for suffix in ("NPZ", "SafeTensors"):
        tg.save(tmp_path / f"X.{suffix}", {"w": np.ones(2)})
        assert same(tg.load(tmp_path / f"X.{suffix}"), {"w": np.ones(2)})
    np.savez(tmp_path / "y.npz", w=np.ones(2))
    os.rename(tmp_path / "y.npz", tmp_path / "Y.NPZ")
    assert same(tg.load(tmp_path / "Y.NPZ"), {"w": np.ones(2)})


def test_structures_and_plain_values_come_back(path):
    Pair = namedtuple("Pair", ["x", "y"])
    state = np.random.PCG64(7).state
    tree = {
        "numbers": [1, 2.5, -0.0, float("inf"), float("nan"), True, None, 2**127 + 1],
        "complex": [3 + 4j, complex(-0.0, float("inf"))],
        "long": [10**5000, -(10**5000) - 1, 10**600],
        "text": "ä\n\ud800",
        "tuples": ((), (np.ones(2),), ([],)),
        "scalars": [np.float32(0.1), np.int8(-3), np.bool_(True)],
        "a.b": {},
        "random": state,
    }
    tg.save(path, tree)
    assert same(tg.load(path), tree)
    tg.save(path, OrderedDict(pair=Pair(tg.tensor(1.0), tg.Value(2.0))))
    assert same(tg.load(path), {"pair": (np.array(1.0), np.array(2.0))})
    tg.save(path, [])
    assert tg.load(path) == []


def test_empty_names_come_back(path):
    optimizer = tg.Adam({"": tg.param([1.0, 2.0])}, lr=0.1)
    tree = {"": {"w": np.ones(2), "": {"": np.full(1, 5.0)}}, "a": {"": np.full(3, 2.0)}}
    into = {"": {"w": tg.param([0.0, 0.0]), "": {"": tg.param([0.0])}}, "a": {"": np.zeros(3)}}
    tg.save(path, {**tree, "o": {"": optimizer}})
    assert same({k: v for k, v in tg.load(path).items() if k != "o"}, tree)
    tg.load(path, into={**into, "o": {"": optimizer}})
    np.testing.assert_array_equal(into[""]["w"].data, [1.0, 1.0])
    np.testing.assert_array_equal(into[""][""][""].data, [5.0])
    np.testing.assert_array_equal(into["a"][""], 2.0)
    tg.save(path, {"": optimizer, "w": np.ones(2)})
    with pytest.raises(ValueError, match="received .* with 'w'; expected only those of `into`"):
        tg.load(path, into={"": ...})


def test_arrays_of_another_byte_order_are_loaded_into(path):
    numbers = np.array([1.5, -2.0, 1e300])
    for saved in (numbers, numbers.astype(">f8")):
        into = {"a": np.zeros(3, ">f8"), "b": np.zeros(3), "c": tg.param(np.zeros(3))}
        tg.save(path, dict.fromkeys(into, saved))
        tg.load(path, into=into)
        for held in (into["a"], into["b"], into["c"].data):
            np.testing.assert_array_equal(held, numbers)
        assert into["a"].dtype == ">f8"


def test_arrays_of_another_byte_order_are_read_as_this_machines(tmp_path):
    numbers = np.array([[1.5, -2.0], [1e300, 0.0]])
    np.savez(tmp_path / "x.npz", a=numbers.astype(">f8"), b=np.asfortranarray(numbers, ">f8"))
    found = tg.load(tmp_path / "x.npz")
    assert same(found, {"a": numbers, "b": numbers})
    assert found["b"].flags.c_contiguous


def test_what_is_loaded_belongs_to_one_tensor(path):
    """One array of a file that has two places becomes two arrays, and the tree does not change."""
    w = tg.param(np.arange(3.0))
    tg.save(path, {"a": w, "b": w})
    a, b, c = tg.param(np.zeros(3)), tg.param(np.zeros(3)), np.zeros(3)
    tg.load(path, into={"a": a, "b": b})
    a.data[0] = 9.0
    np.testing.assert_array_equal(b.data, [0.0, 1.0, 2.0])
    saved = tg.load(path, into={"a": a, "b": b})
    a.grad = np.ones(3)
    tg.SGD([a], lr=1.0).step()
    np.testing.assert_array_equal(a.data, [-1.0, 0.0, 1.0])
    np.testing.assert_array_equal(saved["a"], [0.0, 1.0, 2.0])
    with pytest.raises(ValueError, match="read-only"):
        saved["a"][0] = 7.0
    tg.load(path, into={"a": c, "b": c})
    np.testing.assert_array_equal(c, [0.0, 1.0, 2.0])


def test_tied_parameters_are_kept_once(path):
    w = tg.param([1.0, 2.0])
    model = SimpleNamespace(embed=w, out={"w": w})
    tg.save(path, model)
    saved = tg.load(path)
    assert [*saved] == ["embed", "out.w"] and saved["embed"] is saved["out.w"]
    w.assign([0.0, 0.0])
    tg.load(path, into=model)
    np.testing.assert_array_equal(w.data, [1.0, 2.0])
    # Either name will do, and both must agree where they are two.
    tg.save(path, {"out": {"w": np.array([3.0, 4.0])}})
    tg.load(path, into=model)
    np.testing.assert_array_equal(w.data, [3.0, 4.0])
    tg.save(path, {"embed": np.zeros(2), "out": {"w": np.ones(2)}})
    with pytest.raises(ValueError, match="different numbers for 'embed' and 'out.w'"):
        tg.load(path, into=model)
    np.testing.assert_array_equal(w.data, [3.0, 4.0])
    tg.save(path, {"w": w})
    other = {"w": tg.param([0.0, 0.0])}
    tg.load(path, into=tg.parameters(other))
    np.testing.assert_array_equal(other["w"].data, [3.0, 4.0])


def a_model():
    rng = np.random.default_rng(3)
    layer = SimpleNamespace(w=tg.param(rng.normal(size=(3, 2))), act=tg.relu, last=None)
    layer.last = layer.w * 2.0  # what an object has computed is no part of it
    mean, table = tg.tensor(rng.normal(size=2)), rng.normal(size=2)
    return {"layers": [layer, (tg.Value(1.5), table)], "mean": mean, "eps": 1e-5, "bias": None}


def numbers(model):
    first, (value, table) = model["layers"]
    return [first.w.numpy(), value.data, table.copy(), model["mean"].numpy()]


def cleared(model):
    first, (value, table) = model["layers"]
    first.w.assign(0.0)
    value.data = 0.0
    table[...] = 0.0
    model["mean"].assign(0.0)


def test_a_model_and_its_optimizer_are_given_what_was_saved(path):
    model = a_model()
    optimizer = tg.Adam({"w": model["layers"][0].w}, lr=0.1)
    optimizer.params[0].grad = np.ones((3, 2))
    optimizer.step()
    tg.save(path, {"model": model, "optimizer": optimizer, "random": tg.random.get_state()})
    before, state = numbers(model), optimizer.state_dict()
    drawn = tg.random.uniform(size=3)
    cleared(model)
    optimizer.step()
    saved = tg.load(path, into={"model": model, "optimizer": optimizer})
    assert same(numbers(model), before)
    assert same(optimizer.state_dict(), state) and same(saved["optimizer"], state)
    tg.random.set_state(saved["random"])
    assert same(tg.random.uniform(size=3), drawn)
    cleared(model)
    with pytest.raises(ValueError, match=r"Write 'optimizer': \.\.\. in `into`"):
        tg.load(path, into={"model": model, "random": ...})
    tg.load(path, into={"model": model, "optimizer": ...})
    assert same(numbers(model), before)


def test_a_part_inside_a_model_is_left_alone_by_its_path(path):
    w = tg.param([0.0])
    tg.save(path, {"net": {"w": np.ones(1), "old": np.ones(2)}})
    with pytest.raises(ValueError, match=r"'net\.old'; .* Write 'net\.old': \.\.\. in `into`"):
        tg.load(path, into={"net": {"w": w}})
    assert w.item() == 0.0
    tg.load(path, into={"net": {"w": w}, "net.old": ...})
    assert w.item() == 1.0


def test_an_optimizer_alone_is_a_tree(path):
    optimizer, other = (tg.Adam([tg.param([1.0, 2.0])], lr=rate) for rate in (0.1, 0.2))
    optimizer.params[0].grad = [1.0, 1.0]
    optimizer.step()
    tg.save(path, optimizer)
    tg.load(path, into=other)
    assert same(other.state_dict(), optimizer.state_dict())


def test_a_compiled_step_goes_on_from_what_is_loaded(path, backend):
    model = SimpleNamespace(w=tg.param(np.linspace(0.0, 1.0, 6).reshape(2, 3)))
    optimizer = tg.Adam(model, lr=0.1)

    @tg.compile(xla=False)  # which a slow machine would try between the runs, with other bits
    def step(x):
        optimizer.zero_grad()
        (tg.tanh(x @ model.w) ** 2).sum().backward()
        optimizer.step()

    def run():
        for n in range(4):
            step(np.full((2, 2), 1.0 + n))

    run()
    tg.save(path, {"model": model, "optimizer": optimizer})
    run()
    after = model.w.numpy()
    tg.load(path, into={"model": model, "optimizer": optimizer})
    assert optimizer.steps == 4 and not np.array_equal(model.w.data, after)
    run()
    np.testing.assert_array_equal(model.w.data, after)


def changed(change):
    def make():
        tree = {"model": a_model(), "more": {"x": tg.param([1.0])}}
        return change(tree) or tree

    return make


def read_only(tree):
    tree["model"]["layers"][1][1].setflags(write=False)


DIFFERENT = {
    "a name missing": (lambda t: t.update(y=tg.param(1.0)), ValueError, "with no 'y'"),
    "a name more": (lambda t: t.pop("more") and None, ValueError, "'more.x'; expected only those"),
    "a shape": (
        lambda t: t.update(more={"x": tg.param([1.0, 2.0])}),
        ValueError,
        r"shape \(1,\) for 'more.x'; expected shape \(2,\)",
    ),
    "a dtype": (
        lambda t: t.update(more={"x": tg.param([1.0], np.float32)}),
        TypeError,
        "dtype float64 for 'more.x'; expected dtype float32",
    ),
    "a Value": (lambda t: t.update(more={"x": tg.Value(1.0)}), ValueError, "shape"),
    "a result": (lambda t: t.update(more={"x": tg.param([1.0]) * 2}), TypeError, "a result at"),
    "a read-only array": (read_only, ValueError, "a read-only array at 'model.layers.1.1'"),
    "an optimizer": (
        lambda t: t.update(more=tg.SGD([tg.param(1.0)], lr=0.1)),
        ValueError,
        "SGD: received no 'optimizer'",
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_file_of_another_model_changes_nothing(path, name):
    change, kind, message = DIFFERENT[name]
    tg.save(path, changed(lambda tree: None)())
    into = changed(change)()
    if name != "a read-only array":
        cleared(into["model"])
    before = numbers(into["model"])
    with pytest.raises(kind, match=f"load: .*{message}"):
        tg.load(path, into=into)
    assert same(numbers(into["model"]), before)


def nested(levels, around):
    value = np.ones(2)
    for _ in range(levels):
        value = around(value)
    return value


DEEP, CHAIN = nested(5000, lambda x: [x]), nested(5000, lambda x: SimpleNamespace(next=x))
ITSELF = {"x": {"w": np.ones(2)}}
ITSELF["x"]["again"] = ITSELF["x"]
UNSAVABLE = {
    "a function": ({"f": np.sin}, TypeError, "ufunc.* at 'f'"),
    "an object without tensors": ({"x": [SimpleNamespace(n=3)]}, TypeError, "at 'x.0'"),
    "bytes": ({"x": b"ab"}, TypeError, "bytes b'ab' at 'x'"),
    "objects": ({"x": np.array([None])}, TypeError, "dtype object for 'x'"),
    "strings": ({"x": np.array(["a"])}, TypeError, "dtype <U1 for 'x'"),
    "a masked array": ({"x": np.ma.masked_array([1.0], [True])}, TypeError, "masked array at 'x'"),
    "a key": ({"x": {1: np.ones(2)}}, TypeError, "1 as a name in 'x'"),
    "two of one path": ({"a.b": np.ones(2), "a": {"b": np.ones(2)}}, ValueError, "a second 'a.b'"),
    "the format's name": ({"__metadata__": np.ones(2)}, ValueError, "'__metadata__'"),
    "a name with a NUL": ({"a\0b": np.ones(2)}, ValueError, "an array named"),
    "a name with half a character": ({"a\ud800": np.ones(2)}, ValueError, r"named 'a\\ud800'"),
    "a dict that holds itself": (ITSELF, ValueError, "a dict at 'x.again', which holds itself"),
    "a deep list": (DEEP, ValueError, r"a list at '0\.0\.0[.0]*'\.*, 100 levels down"),
    "a deep object": ({"x": CHAIN}, ValueError, "at 'x', nested deeper"),
    "an array alone": (np.ones(2), TypeError, r"Write \{\"w\": w\}"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNSAVABLE)
def test_what_no_file_can_hold_is_refused_and_the_old_one_stays(path, name):
    tree, kind, message = UNSAVABLE[name]
    tg.save(path, {"old": 1})
    with pytest.raises(kind, match=f"save: received.*{message}"):
        tg.save(path, tree)
    assert tg.load(path) == {"old": 1}
    assert len(os.listdir(os.path.dirname(path))) == 1


def test_names_of_any_length_go_to_safetensors(tmp_path):
    tree = {"x" * 70_000: np.ones(2)}
    with pytest.raises(ValueError, match="a name of 70000 bytes, 'xxx.*at most 65531"):
        tg.save(tmp_path / "run.npz", tree)
    assert not os.listdir(tmp_path)
    tg.save(tmp_path / "run.safetensors", tree)
    assert same(tg.load(tmp_path / "run.safetensors"), tree)
    tg.save(tmp_path / "run.npz", {"x" * 65_531: np.ones(2)})
    assert same(tg.load(tmp_path / "run.npz"), {"x" * 65_531: np.ones(2)})


def test_trees_are_as_deep_as_is_said(path):
    tree = nested(99, lambda x: {"a": (x,)} if isinstance(x, np.ndarray) else [x])
    tg.save(path, tree)
    assert same(tg.load(path), tree)
    with pytest.raises(ValueError, match="load: received list, nested deeper"):
        tg.load(path, into=DEEP)


@pytest.mark.parametrize("dtype", ["complex128", "longdouble"])
def test_dtypes_that_safetensors_has_not_go_to_npz(tmp_path, dtype):
    array = np.arange(3).astype(dtype)
    with pytest.raises(TypeError, match="which safetensors files cannot hold.*Save as .npz"):
        tg.save(tmp_path / "x.safetensors", {"x": array})
    tg.save(tmp_path / "x.npz", {"x": array})
    np.testing.assert_array_equal(tg.load(tmp_path / "x.npz")["x"], array)


def test_arguments_that_are_none_are_refused(tmp_path):
    for call in (lambda p: tg.save(p, {}), tg.load):
        with pytest.raises(ValueError, match="one that ends in .safetensors or .npz"):
            call(tmp_path / "run.pkl")
    for metadata in ({"a": 1}, {"tapegraph": "x"}, "text", {"a": "\ud800"}):
        with pytest.raises(TypeError, match="save: received metadata"):
            tg.save(tmp_path / "run.npz", {}, metadata)
    tg.save(tmp_path / "run.npz", {"w": np.ones(2)})
    with pytest.raises(TypeError, match=r"load: received Tensor.*Write \{\"w\": w\}"):
        tg.load(tmp_path / "run.npz", into=tg.param([0.0, 0.0]))
    step = tg.compile(lambda x: tg.save(tmp_path / "run.npz", {"x": x}))
    with pytest.raises(RuntimeError, match="save: a compiled step cannot do this"):
        step(np.ones(2))


# -- the file ------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="mode bits are POSIX's")
def test_the_mode_of_a_file_stays_and_links_lead_to_it(path, tmp_path):
    umask = os.umask(0o027)
    try:
        tg.save(path, {"x": 1})
    finally:
        os.umask(umask)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o640
    os.chmod(path, 0o604)
    link = tmp_path / f"link{os.path.splitext(path)[1]}"
    link.symlink_to(path)
    tg.save(link, {"x": 2})
    assert link.is_symlink() and tg.load(path) == {"x": 2}
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o604


@pytest.mark.parametrize(
    ("call", "order"),
    [
        (lambda w, path: tg.save({"w": w}, path), "tg.save(path, tree)"),
        (lambda w, path: tg.load({"w": w}, path), "tg.load(path, into=tree)"),
        (lambda w, path: tg.draw(w * 2.0).save(w), "tg.draw(x).save("),
    ],
)
def test_a_path_is_asked_for_where_another_argument_stands(tmp_path, call, order):
    with pytest.raises(TypeError, match="expected a path") as raised:
        call(tg.param(np.ones((2, 1))), str(tmp_path / "a.npz"))
    assert order in str(raised.value)
    assert not list(tmp_path.iterdir())
