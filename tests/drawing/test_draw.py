"""`draw`: the picture is the recorded graph, folded where it is long, and legible."""

from __future__ import annotations

import html
import re
import runpy
import struct
import sys
import weakref
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from geometry import check, links

import tapegraph as tg
from tapegraph.drawing import layout
from tapegraph.drawing.scene import DARK, INK, KINDS, LIGHT

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
SVG = "{http://www.w3.org/2000/svg}"


def by_title(drawing) -> dict[str, list[str]]:
    """The lines of each box, by the first of them."""
    return {box.lines[0].text: [line.text for line in box.lines] for box in drawing._scene.boxes}


def frames(drawing) -> list[str]:
    return [frame.part.heading for frame in drawing._scene.frames]


def perceptron(hidden: int = 3):
    rng = np.random.default_rng(0)
    shapes = {"W1": (2, hidden), "b1": (hidden,), "W2": (hidden, 1), "b2": (1,)}
    model = {name: tg.param(rng.normal(size=shape), name=name) for name, shape in shapes.items()}
    x, y = rng.normal(size=(5, 2)), rng.normal(size=(5, 1))
    hidden_values = tg.tanh(x @ model["W1"] + model["b1"])
    return model, tg.mean((hidden_values @ model["W2"] + model["b2"] - y) ** 2)


def looped(times: int):
    """A loop whose body reads its own weights and what it gave before, and what leads to it."""
    rng = np.random.default_rng(0)
    x = tg.sin(tg.param(rng.normal(size=(3, 4)), name="x"))
    for i in range(times):
        w = tg.param(rng.normal(size=(4, 4)), name=f"w{i}")
        x = x + tg.tanh(tg.exp(x * 0.1) @ w)
    return tg.sum(x)


# ------------------------------------------------------------------ the graph that is drawn


def test_each_entry_and_each_input_of_the_tape_is_drawn():
    tg.tape_reset()
    _, loss = perceptron()
    drawing = tg.draw(loss)
    entries = [entry for entry in tg.tape() if entry.op != "scalar"]  # a number is inscribed
    assert drawing.boxes == len(entries) == 14
    drawn = drawing._scene.edges
    numbers = {entry.slot for entry in tg.tape() if entry.op == "scalar"}
    read = [slot for entry in entries for slot in entry.inputs if slot not in numbers]
    assert len(drawn) == len(read) == 13
    check(drawing)


def test_what_is_said_of_a_box():
    x = tg.param([1.0, 2.0], name="x")
    y = tg.sum(x * 3.0)
    assert by_title(tg.draw(y))["x"] == ["x", "(2,)", "= [1, 2]"]  # before any gradient
    y.backward()
    drawing = tg.draw(y, names={"input": x, "output": y})
    assert by_title(drawing) == {
        "input": ["input", "(2,)", "= [1, 2]", "grad [3, 3]"],
        "mul(·, 3)": ["mul(·, 3)", "(2,)", "= [3, 6]"],
        "output = sum": ["output = sum", "axis=(0,)", "= 9"],
    }
    assert drawing.title == "output"
    assert links(drawing) == {("input", "mul(·, 3)"), ("mul(·, 3)", "output = sum")}


def test_a_large_gradient_is_told_by_its_length():
    w = tg.param(np.ones((3, 4)), name="w")
    tg.sum(w * 2.0).backward()
    assert by_title(tg.draw(w))["w"][-1] == "|grad| 6.93"  # sqrt(12 * 4)


def test_operands_are_told_apart_where_their_order_counts():
    x, y = tg.param(1.0, name="x"), tg.param(2.0, name="y")
    for result, wanted in ((y - x, {"x": "2", "y": "1"}), (x + y, {"x": "", "y": ""})):
        drawing = tg.draw(result)
        found = {edge.ends[0].members[0]: edge.label for edge in drawing._scene.edges}
        names = {box.part.members[0]: box.lines[0].text for box in drawing._scene.boxes}
        assert {names[i]: label for i, label in found.items()} == wanted
    assert "sub(1, ·)" in by_title(tg.draw(1 - x)) and "sub(·, 1)" in by_title(tg.draw(x - 1))


def test_values_are_drawn_as_micrograd_does():
    a, b = tg.Value(2.0, label="a"), tg.Value(-3.0, label="b")
    c = (a * b + a).relu()
    assert by_title(tg.draw(c))["a"] == ["a", "= 2"]
    d = a * b + a
    d.backward()
    drawing = tg.draw(d, names={"d": d})
    assert by_title(drawing) == {
        "a": ["a", "= 2", "grad -2"],
        "b": ["b", "= -3", "grad 2"],
        "mul": ["mul", "= -6", "grad 1"],
        "d = add": ["d = add", "= -4", "grad 1"],
    }
    assert links(drawing) == {("a", "mul"), ("b", "mul"), ("a", "d = add"), ("mul", "d = add")}
    check(drawing)


def test_tapes_programs_and_several_results():
    tg.tape_reset()
    x = tg.param(2.0, name="x")
    y, z = tg.sin(x), x * 2.0
    both = tg.draw([y, z])
    assert both.boxes == 3 and sum(box.is_result for box in both._scene.boxes) == 2
    assert tg.draw(tg.tape()).boxes == 3
    program = tg.draw(tg.tape().recording().program)
    assert program.boxes == 3 and "x" not in by_title(program)  # it knows no names
    tg.tape_reset()
    assert tg.draw(tg.tape()).boxes == 0


def test_a_drawing_leaves_everything_as_it_was():
    tg.tape_reset()
    model, loss = perceptron()
    before = str(tg.tape())
    drawing = tg.draw(loss)
    assert str(tg.tape()) == before and model["W1"].grad is None
    loss.backward()
    assert "|grad|" not in str(drawing)  # it shows what was
    held = weakref.ref(loss)
    del loss
    assert held() is None  # and holds nothing
    assert drawing.boxes == 14


# ------------------------------------------------------------------ folding


@pytest.mark.parametrize("times", [4, 7])
def test_a_loop_is_drawn_once_with_how_often(times):
    drawing = tg.draw(looped(times), boxes=8)
    assert frames(drawing) == [f"× {times}"]
    (frame,) = drawing._scene.frames
    operations = [i for box in frame.part.boxes() for i in box.members]
    vertices = drawing._folding.sketch.vertices
    assert sorted(vertices[i].op for i in operations) == ["add", "exp", "matmul", "mul", "tanh"]
    # What stands for all rounds stands for each operation of them, and for nothing else.
    alike = drawing._folding.alike
    assert [len(alike[i]) for i in operations] == [times] * 5
    assert f"w0…{times - 1}" in str(drawing)
    # The next round reads x again, for the product and for the sum.
    again = [edge.ends[1].members[0] for edge in drawing._scene.edges if edge.again]
    assert sorted(vertices[i].op for i in again) == ["add", "mul"]
    check(drawing)


def test_the_result_of_a_loop_is_marked():
    x = tg.param(np.ones((3, 4)), name="x")
    for _ in range(40):
        x = x * 0.5 + tg.tanh(x)
    drawing = tg.draw(x, boxes=8)
    assert frames(drawing) == ["× 40"]
    assert [box.lines[0].text for box in drawing._scene.boxes if box.is_result] == ["add"]


def test_a_round_begins_where_the_least_goes_on_to_the_next():
    h, w = tg.param(np.ones((2, 3)), name="h"), tg.param(np.eye(3), name="w")
    for _ in range(4):
        h = h + tg.exp(tg.tanh(h @ w))
    drawing = tg.draw(tg.sum(tg.exp(tg.tanh(h @ w)) * 2.0), boxes=6)
    (frame,) = drawing._scene.frames
    vertices = drawing._folding.sketch.vertices
    # What comes after the last round begins like one, so that a round could begin there too; but
    # from it the sum alone goes on.
    inside = [vertices[i].op for box in frame.part.boxes() for i in box.members]
    assert frame.part.heading == "× 4" and inside == ["matmul", "tanh", "exp", "add"]


def test_what_is_done_side_by_side_is_drawn_once():
    x = tg.param(np.ones((5, 8)), name="x")
    heads = [tg.softmax(x @ tg.param(np.ones((8, 2)), name=f"q{i}")) for i in range(6)]
    drawing = tg.draw(tg.sum(tg.concat(heads, axis=1)), boxes=6)
    assert "q0…5" in str(drawing) and "× 6" in str(drawing)
    check(drawing)


def test_what_is_read_by_different_operations_is_no_repetition():
    x = tg.param(np.ones((2, 2)), name="x")
    q, k, v = (tg.tanh(x @ tg.param(np.ones((2, 2)), name=name)) for name in "qkv")
    drawing = tg.draw(tg.sin(q) @ tg.cos(k) / v, boxes=6)
    assert frames(drawing) == [] and all(f"matmul(·, {name})" in str(drawing) for name in "qkv")


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["w10", "w11", "w12", "w19"], "w10…19"),
        (["layers.0.w", "layers.1.w", "layers.2.w", "layers.3.w"], "layers.0…3.w"),
        (["first", "second", "third", "fourth"], "first … fourth"),
        (["w", "w", "w", "w"], "w"),
        (["a0", "b1", "c2", "d3"], "a0 … d3"),
    ],
)
def test_names_of_what_stands_for_several(names, wanted):
    x = tg.param(np.ones(2), name="x")
    for name in names:
        x = tg.tanh(tg.exp(x) * tg.param(1.0, name=name))
    assert f"mul(·, {wanted})" in str(tg.draw(x, boxes=6))


def normed(x):
    return x * (tg.mean(x * x) + 1e-5) ** -0.5


def test_a_function_that_comes_again_is_a_box():
    x = tg.param(np.ones(3), name="x")
    drawing = tg.draw(normed(tg.exp(normed(x) + x)) - tg.sin(x), boxes=6)
    titles = [box.lines[0].text for box in drawing._scene.boxes]
    assert titles.count("normed") == 2
    assert by_title(drawing)["normed"][1] == "mul mean add pow mul"


def load_gpt(monkeypatch, name):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    pytest.importorskip("matplotlib")
    pytest.importorskip("tqdm")
    for module in ("_common", "_data", name):
        monkeypatch.delitem(sys.modules, module, raising=False)
    return __import__(name)


@pytest.mark.thorough
def test_a_gpt_of_four_layers_fits_a_screen(monkeypatch):
    gpt = load_gpt(monkeypatch, "gpt")
    monkeypatch.setattr(gpt, "LAYERS", 4)
    rng = np.random.default_rng(0)
    model = gpt.new_model(rng, 40)
    passages = rng.integers(0, 40, (2, 17))
    loss = gpt.mean_bits(model, passages)
    drawing = tg.draw(loss)
    assert frames(drawing) == ["× 4"]
    assert drawing.boxes <= 24
    width, height = drawing.size
    assert width <= 1000 and height <= 1200
    alike = drawing._folding.alike
    (frame,) = drawing._scene.frames
    assert {len(alike[i]) for box in frame.part.boxes() for i in box.members} == {4}
    for name in ("Wq0…3", "Wo0…3", "V0…3", "letter", "guess"):
        assert name in drawing.svg()
    check(drawing)

    step = tg.compile(gpt.new_step(model, 20))
    with tg.use_backend("native"):
        for _ in range(3):
            step(passages)
    whole = tg.draw(step)
    assert frames(whole) == ["forward", "× 4", "update"]
    assert whole.boxes <= 30 and "by 27 tensors" in str(whole) and "passages" in by_title(whole)
    check(whole)


def test_values_fold_by_depth():
    rng = np.random.default_rng(0)
    x = [tg.Value(number, label=f"x{i}") for i, number in enumerate(rng.normal(size=3))]
    for width in (6, 6, 1):
        weights = rng.normal(size=(width, len(x)))
        x = [tg.vsum(tg.Value(w) * one for one, w in zip(x, row, strict=True)) for row in weights]
        x = [total.tanh() for total in x]
    drawing = tg.draw(x[0])
    text = str(drawing)
    assert re.search(r"mul\(.*, ·\) × 18 .* mul\(.*, ·\) × 36 .* × 6 ", text.replace("\n", " "))
    assert drawing.boxes <= 8
    check(drawing)
    whole = tg.draw(x[0], boxes=1000)
    assert whole.boxes == len(drawing._folding.sketch.vertices)
    check(whole)


def irregular(entries: int):
    rng = np.random.default_rng(1)
    pool = [tg.param(rng.normal(size=2), name=f"p{i}") for i in range(30)]
    functions = (tg.sin, tg.tanh, lambda x: x * pool[rng.integers(len(pool))])
    for _ in range(entries):
        x = functions[rng.integers(3)](pool[-1 - rng.integers(10)])
        pool.append(x + pool[-1 - rng.integers(20)])
    return pool[-1]


@pytest.mark.parametrize("boxes", [1, 5, 24])
def test_a_graph_without_any_order_is_bounded(boxes):
    drawing = tg.draw(irregular(400), boxes=boxes)
    assert drawing.boxes <= 2 * boxes + 3
    check(drawing)
    # Nothing is lost: every operation is drawn, or something else for it.
    folding = drawing._folding
    shown = {i for part in folding.root.boxes() for i in part.members}
    vertices = folding.sketch.vertices
    assert all(folding.base[i] in shown for i, v in enumerate(vertices) if not v.is_leaf)


def random_graph(seed: int):
    rng = np.random.default_rng(seed)
    pool = [tg.param(rng.normal(size=3), name=f"p{i}") for i in range(rng.integers(1, 5))]
    binary, unary = (np.add, np.subtract, np.maximum), (np.sin, np.tanh, lambda x: x * 2.0)

    def pick():
        return pool[-1 - min(int(rng.exponential(4)), len(pool) - 1)]

    for _ in range(int(rng.choice([1, 6, 20, 60]))):
        if rng.random() < 0.5:
            pool.append(binary[rng.integers(3)](pick(), pick()))
        else:
            pool.append(unary[rng.integers(3)](pick()))
    return sum(pool[-3:], start=pool[-1] * 1.0)


def test_edges_of_any_length_take_a_bounded_number_of_lanes(monkeypatch):
    rng = np.random.default_rng(0)
    values = [tg.param(1.0)]
    for _ in range(50):  # each reads one from anywhere before it
        values.append(values[-1] + tg.sin(values[rng.integers(len(values))]))

    def drawn():
        drawing = tg.draw(values[-1], boxes=1000)
        return sum(len(edge.points) // 2 - 2 for edge in drawing._scene.edges), drawing.boxes

    lanes, boxes = drawn()
    assert lanes > 500 and boxes == 101
    monkeypatch.setattr(layout, "_MOST_LANES", 500)
    fewer, left = drawn()
    assert 0 < fewer <= 500 and 24 <= left < boxes


def test_random_graphs_are_legible(thorough):
    for seed in range(400 if thorough else 5):
        for boxes in (4, 24, 200):
            drawing = tg.draw(random_graph(seed), boxes=boxes)
            check(drawing)


def test_all_edges_that_are_not_folded_are_drawn():
    for seed in range(8):
        drawing = tg.draw(random_graph(seed), boxes=500)
        vertices = drawing._folding.sketch.vertices
        wanted = {
            (x, i)
            for i, vertex in enumerate(vertices)
            for x in vertex.inputs
            if vertices[x].kind != "number"
        }
        drawn = {(e.ends[0].members[0], e.ends[1].members[0]) for e in drawing._scene.edges}
        assert drawn == wanted


# ------------------------------------------------------------------ compiled steps


def test_a_step_is_drawn_in_regions():
    w = tg.param([1.0, 2.0], name="w")
    optimizer = tg.SGD([w], lr=0.1, momentum=0.9)

    @tg.compile
    def step(batch, scale):
        loss = tg.sum((w * batch["x"]) ** 2) * scale
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    with pytest.raises(RuntimeError, match=r"draw: received a step that has not been called"):
        tg.draw(step)
    with tg.use_backend("native"):
        for _ in range(4):
            step({"x": np.ones(2)}, 0.5)
    before = w.numpy()
    drawing = tg.draw(step, names={"weights": w})
    text = str(drawing)
    assert frames(drawing) == ["forward", "update"]
    assert "gradients of mul" in text and "writes weights" in text
    assert {"batch['x']", "scale", "weights"} <= set(by_title(drawing))
    assert "step(batch={'x': float64[2]}, scale: float)" in text and "engine: native" in text
    assert "bytes of native buffers" in text and "several shapes" not in text
    # What the update alone reads is drawn there, and the forward reads no gradient.
    titles = {id(box.part): box.lines[0].text for box in drawing._scene.boxes}
    forward, update = (
        {titles[id(part)] for part in frame.part.boxes()} for frame in drawing._scene.frames
    )
    assert "sum" in forward and {"sub", "mul(0.9, ·)", "add(·, 1)"} <= update
    assert forward & update == {"mul"}
    check(drawing)
    assert np.array_equal(w.numpy(), before)


def test_a_steps_state_is_no_constant_and_its_own_name_no_function():
    params = [tg.param(np.full(shape, 0.5), name=f"w{len(shape)}") for shape in ((2, 2), (2,), ())]
    optimizer = tg.SGD(params, lr=0.1, momentum=0.9)

    @tg.compile
    def train(x):
        loss = tg.mean((tg.tanh(x @ params[0] + params[1]) * params[2]) ** 2)
        optimizer.zero_grad()
        loss.backward()
        tg.clip_grad_norm(params, 1.0)
        optimizer.step()
        return loss

    with tg.use_backend("native"):
        for _ in range(4):
            train(np.ones((3, 2)))
    drawing = tg.draw(train, boxes=60)
    assert "train" not in by_title(drawing)
    lines = [line for found in by_title(drawing).values() for line in found]
    assert {"mul(0.9, state)", "add(state, 1)"} <= set(lines)


def test_a_forward_alone_has_no_regions():
    f = tg.compile(lambda x: tg.sin(x) * 2.0)
    f(np.ones(3))
    drawing = tg.draw(f)  # after one call
    assert frames(drawing) == [] and "recorded once" in str(drawing) and "x" in by_title(drawing)


# ------------------------------------------------------------------ files


NASTY = 'a<b> & "c" \\ \x07 \ud800 日本'


def test_svg_is_well_formed_and_escaped():
    x = tg.param(1.0, name=NASTY)
    drawing = tg.draw(tg.sin(x), names={"</svg><script>": x * 1.0} | {NASTY: x})
    check(drawing)
    text = drawing.svg()
    root = ET.fromstring(text)
    assert root.tag == f"{SVG}svg" and "<script" not in text
    assert root.attrib["width"] == str(drawing.size[0])
    written = [found.text for found in root.iter(f"{SVG}text")]
    assert any(t.startswith('a<b> & "c"') for t in written)
    assert len(list(root.iter(f"{SVG}g"))) == drawing.boxes
    # Its rules are for itself alone, and it refers to nothing outside.
    rules = root.find(f"{SVG}style").text
    selectors = re.findall(r"[^{}]+(?= \{)", re.sub(r"@media [^{]+\{", "", rules))
    assert len(selectors) > 10
    assert all(f"{one.strip()} ".startswith(".tapegraph ") for one in selectors)
    assert "href" not in text and "url(" not in text


def test_light_and_dark():
    drawing = tg.draw(tg.sin(tg.param(1.0)))
    both, light, dark = drawing.svg(), drawing.svg("light"), drawing.svg("dark")
    assert (
        "prefers-color-scheme: dark" in both and LIGHT["ground"] in both and DARK["ground"] in both
    )
    # No style sheet, which some that draw SVG pass over: each shape has its colours.
    for text in (light, dark, both):
        root = ET.fromstring(text)
        assert (root.find(f"{SVG}style") is not None) == (text is both)
        assert "style" not in root.attrib  # where a height of none is an empty picture
        tags = {f"{SVG}{name}" for name in ("rect", "text", "path")}
        shapes = [x for x in root.iter() if x.tag in tags]
        theme = DARK if text is dark else LIGHT
        assert len(shapes) > 8 and {x.attrib["fill"] for x in shapes} <= {"none", *theme.values()}
    assert re.sub("<style>.*</style>\n", "", both) == light
    assert DARK["ground"] in dark and DARK["ground"] not in light
    with pytest.raises(ValueError, match=r"draw: received theme='blue'; expected 'light', 'dark'"):
        drawing.svg("blue")


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, as WCAG 2.1 defines it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_all_that_is_written_is_legible(theme):
    for ink in ("ink", *INK.values()):
        for ground in ("ground", "frame", *KINDS):
            assert contrast(theme[ink], theme[ground]) >= 4.5, (ink, ground)  # WCAG's AA
    for line in ("edge", *(f"{kind}-line" for kind in KINDS)):
        assert contrast(theme[line], theme["ground"]) >= 2.2


TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[A-Za-z_]\w*|->|[{}\[\]=,;])')


def parsed_dot(text: str) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """The nodes with their labels, and the edges, of the part of DOT's grammar that is written."""
    tokens, place = [], 0
    while text[place:].strip():
        found = TOKEN.match(text, place)
        assert found, text[place : place + 40]
        tokens.append(found[1])
        place = found.end()
    nodes, edges = {}, []
    stack = []
    i = 0

    def options(i):
        known = {}
        if tokens[i] == "[":
            i += 1
            while tokens[i] != "]":
                name, equals, value = tokens[i : i + 3]
                assert equals == "=" and value.startswith('"')
                known[name] = value[1:-1]
                i += 3 + (tokens[i + 3] == ",")
            i += 1
        assert tokens[i] == ";"
        return known, i + 1

    while i < len(tokens):
        if tokens[i] in ("digraph", "subgraph"):
            assert tokens[i + 2] == "{"
            stack.append(tokens[i + 1])
            i += 3
        elif tokens[i] == "}":
            stack.pop()
            i += 1
        elif tokens[i + 1] == "->":
            edges.append((tokens[i], tokens[i + 2]))
            _, i = options(i + 3)
        elif tokens[i + 1] == "=":
            assert tokens[i + 3] == ";"
            i += 4
        else:
            known, after = options(i + 1)
            if tokens[i] != "node":
                nodes[tokens[i]] = known["label"]
            i = after
    assert not stack
    return nodes, edges


def test_dot_says_the_same():
    drawing = tg.draw(looped(5) + tg.sin(tg.param(1.0, name=NASTY)), boxes=8)
    nodes, edges = parsed_dot(drawing.dot())
    assert len(nodes) == drawing.boxes
    assert len(edges) == len(drawing._scene.edges)
    assert {end for edge in edges for end in edge} <= nodes.keys()
    assert "subgraph cluster" in drawing.dot()
    (label,) = parsed_dot(tg.draw(tg.param(1.0, name='q"\\n')).dot())[0].values()
    assert label == r"q\"\\n\n= 1"


def test_png_of_names_that_no_font_has(tmp_path):
    pytest.importorskip("matplotlib")
    drawing = tg.draw(tg.sin(tg.param(1.0, name="\u2e80 ü")) * 2.0)
    drawing.save(tmp_path / "x.png")  # where a warning is an error
    with_one = tmp_path / "other.png"
    tg.draw(tg.sin(tg.param(1.0, name="重み"))).save(with_one)
    assert with_one.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.thorough
def test_png_is_as_large_as_is_asked_for(tmp_path):
    image = pytest.importorskip("matplotlib.image")
    drawing = tg.draw(looped(4) * tg.param(1.0, name="$a_b$"), boxes=8)
    drawing.save(tmp_path / "graph.png", theme="dark", scale=1.5)
    data = (tmp_path / "graph.png").read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    size = struct.unpack(">II", data[16:24])
    assert np.allclose(size, np.multiply(drawing.size, 1.5), atol=1)
    pixels = np.round(image.imread(tmp_path / "graph.png")[..., :3] * 255).astype(int)
    assert "#{:02x}{:02x}{:02x}".format(*pixels[0, 0]) == DARK["ground"]
    # Boxes, frames and letters are there, each in its colour.
    colours = {"#{:02x}{:02x}{:02x}".format(*c) for c in np.unique(pixels.reshape(-1, 3), axis=0)}
    assert {DARK[kind] for kind in ("frame", "operation", "result-line", "ink")} <= colours


def test_files_by_their_ending(tmp_path, monkeypatch):
    drawing = tg.draw(tg.sin(tg.param(1.0, name="é")))
    for ending, text in (
        (".svg", drawing.svg()),
        (".dot", drawing.dot()),
        (".txt", f"{drawing}\n"),
    ):
        drawing.save(tmp_path / f"graph{ending}")
        assert (tmp_path / f"graph{ending}").read_text(encoding="utf-8") == text
    with pytest.raises(ValueError, match=r"save: received '.*\.pdf'; expected a path that ends"):
        drawing.save(tmp_path / "graph.pdf")
    with pytest.raises(ValueError, match=r"scale=0; expected a positive number"):
        drawing.save(tmp_path / "graph.png", scale=0)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "matplotlib>=3\.10\.7"; \.svg and'):
        drawing.save(tmp_path / "graph.png")
    assert not (tmp_path / "graph.png").exists()


def test_a_notebook_gets_a_picture_with_text_beside():
    drawing = tg.draw(tg.sin(tg.param(1.0)))
    bundle = drawing._repr_mimebundle_()
    assert bundle == {"image/svg+xml": drawing.svg(), "text/plain": str(drawing)}
    assert repr(drawing) == "<drawing of result of sin: 2 boxes; save it, or print it>"
    assert html.unescape(bundle["image/svg+xml"]).count("sin") >= 2


# ------------------------------------------------------------------ mistakes


def test_what_cannot_be_drawn_is_refused():
    y = tg.sin(tg.param(1.0))
    for wrong in (3.0, [], [y, 3.0], [y, tg.Value(1.0)], np.ones(2), "y"):
        with pytest.raises(
            TypeError, match=r"draw: received .*; expected a tensor, a Value, a list"
        ):
            tg.draw(wrong)
    with pytest.raises(TypeError, match=r"Draw its \.primal"):
        tg.draw(tg.Dual(1.0, 1.0))
    for wrong in (0, -1, 1.5, True, 2000, None):
        with pytest.raises(ValueError, match=r"draw: received boxes=.*; expected a number from 1"):
            tg.draw(y, boxes=wrong)
    for wrong in ("y", y, {"y": 3.0}, 5):
        with pytest.raises(TypeError, match=r"for 'names'; expected a dict of names to tensors"):
            tg.draw(y, names=wrong)


def test_a_result_that_was_cleared_says_so():
    y = tg.param(2.0) * 3.0
    tg.tape_reset()
    with pytest.raises(
        RuntimeError, match=r"draw: .* that tape_reset\(\) has cleared; .* Draw before"
    ):
        tg.draw(y)
    assert "cleared" in by_title(tg.draw(y * 2.0))  # and what was computed from it is drawn


def test_a_step_does_not_draw_itself():
    def step(x):
        tg.draw(x * 2.0)
        return x

    with pytest.raises(RuntimeError, match=r"draw: a compiled step cannot do this.*draw\(step"):
        tg.compile(step)(np.ones(2))


def test_the_pictures_of_the_docs_are_those_of_their_script():
    docs = HERE.parents[1] / "docs"
    script = runpy.run_path(str(docs / "pictures" / "draw.py"))
    names = {path.stem for path in (docs / "pictures").glob("*.svg")}
    assert names == script["PICTURES"].keys()
    page = (docs / "seeing.md").read_text()
    assert all(f"(pictures/{name}.svg)" in page for name in names)
    for name in ("expression", "neuron", "perceptron", "transformer_block", "values"):
        drawing = script["PICTURES"][name]()
        kept = (docs / "pictures" / f"{name}.svg").read_text()
        # The numbers in them may differ in the last digit that is shown.
        assert re.sub(r"[-\d.]+", "", drawing.svg()) == re.sub(r"[-\d.]+", "", kept)
        check(drawing)
