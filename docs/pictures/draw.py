"""Draw the pictures of the page "Seeing": ``python docs/pictures/draw.py``."""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np

import tapegraph as tg

HERE = Path(__file__).parent


def expression() -> tg.Drawing:
    """Draw one line of arithmetic, after its backward."""
    x, w = tg.param(3.0, name="x"), tg.param([1.0, 2.0, 3.0], name="w")
    y = tg.sum(tg.sin(w * x) ** 2) / 2
    y.backward()
    return tg.draw(y, names={"y": y})


def perceptron() -> tg.Drawing:
    """Draw a network of two layers."""
    rng = np.random.default_rng(0)
    shapes = {"W1": (2, 16), "b1": (16,), "W2": (16, 1), "b2": (1,)}
    model = {name: tg.param(rng.normal(size=shape)) for name, shape in shapes.items()}
    x, y = tg.tensor(rng.normal(size=(50, 2))), tg.tensor(rng.normal(size=(50, 1)))
    guess = tg.tanh(x @ model["W1"] + model["b1"]) @ model["W2"] + model["b2"]
    loss = tg.mean((guess - y) ** 2)
    loss.backward()
    return tg.draw(loss, names=model | {"x": x, "y": y, "loss": loss})


class Neuron:
    """A neuron of micrograd's."""

    def __init__(self, inputs: int) -> None:
        self.w = [tg.Value(random.uniform(-1, 1), label=f"w{i}") for i in range(inputs)]
        self.b = tg.Value(0.0, label="b")

    def __call__(self, x: list[tg.Value]) -> tg.Value:
        """Return its answer."""
        return tg.vsum([*(wi * xi for wi, xi in zip(self.w, x, strict=True)), self.b]).tanh()


def neuron() -> tg.Drawing:
    """Draw one neuron of Values."""
    random.seed(1)
    x = [tg.Value(1.0, label="x0"), tg.Value(-2.0, label="x1")]
    y = Neuron(2)(x)
    y.backward()
    return tg.draw(y, names={"y": y})


def values() -> tg.Drawing:
    """Draw a network of Values: three layers of neurons, folded by depth."""
    random.seed(1)
    x = [tg.Value(number, label=f"x{i}") for i, number in enumerate((2.0, 3.0, -1.0))]
    for width in (4, 4, 1):
        layer = [Neuron(len(x)) for _ in range(width)]
        x = [unit(x) for unit in layer]
    loss = (x[0] - 1.0) ** 2
    loss.backward()
    return tg.draw(loss, names={"loss": loss})


WIDTH, HEADS, LENGTH = 32, 4, 16
EARLIER = np.tri(LENGTH, dtype=bool)


def normed(x: tg.Tensor) -> tg.Tensor:
    """Each row, scaled to a mean square of one."""
    return x * (tg.mean(x * x, axis=-1, keepdims=True) + 1e-5) ** -0.5


def heads(x: tg.Tensor) -> tg.Tensor:
    """Every head's part of each row."""
    return x.reshape(LENGTH, HEADS, WIDTH // HEADS).transpose(1, 0, 2)


def block(layer: dict[str, tg.Tensor], x: tg.Tensor) -> tg.Tensor:
    """Attention to what came before, and a layer of neurons, each beside a residual."""
    rows = normed(x)
    q, k, v = (heads(rows @ layer[name]) for name in ("query", "key", "value"))
    scores = q @ k.transpose(0, 2, 1) * (WIDTH // HEADS) ** -0.5
    mixed = tg.softmax(tg.where(EARLIER, scores, -np.inf)) @ v
    x = x + mixed.transpose(1, 0, 2).reshape(LENGTH, WIDTH) @ layer["out"]
    return x + tg.relu(normed(x) @ layer["up"]) @ layer["down"]


def new_model(layers: int) -> dict[str, list[dict[str, tg.Tensor]] | tg.Tensor]:
    """Return the parameters of a GPT."""
    rng = np.random.default_rng(0)
    square = dict.fromkeys(("query", "key", "value", "out"), (WIDTH, WIDTH))
    shapes = square | {"up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    made = [
        {name: tg.param(rng.normal(0, 0.1, shape), np.float32) for name, shape in shapes.items()}
        for _ in range(layers)
    ]
    letters = tg.param(rng.normal(size=(27, WIDTH)), np.float32)
    guess = tg.param(rng.normal(0, 0.1, (WIDTH, 27)), np.float32)
    return {"letter": letters, "layers": made, "guess": guess}


def surprise(model: dict, letters: np.ndarray) -> tg.Tensor:
    """Return the mean surprise at each letter, having seen those before it."""
    x = tg.gather(model["letter"], letters[:-1])
    for layer in model["layers"]:
        x = block(layer, x)
    return tg.softmax_crossentropy(normed(x) @ model["guess"], letters[1:])


def transformer_block() -> tg.Drawing:
    """Draw one block of a transformer."""
    model = new_model(1)
    x = tg.param(np.ones((LENGTH, WIDTH), np.float32))
    y = block(model["layers"][0], x)
    return tg.draw(y, names=model["layers"][0] | {"x": x, "y": y})


def gpt() -> tg.Drawing:
    """Draw a GPT of four layers."""
    model = new_model(4)
    loss = surprise(model, np.arange(LENGTH + 1))
    loss.backward()
    return tg.draw(loss, names=tg.parameters(model) | {"loss": loss})


def step() -> tg.Drawing:
    """Draw a compiled training step of the network of two layers, run natively."""
    rng = np.random.default_rng(0)
    shapes = {"W1": (2, 16), "b1": (16,), "W2": (16, 1), "b2": (1,)}
    model = {name: tg.param(rng.normal(size=shape)) for name, shape in shapes.items()}
    optimizer = tg.SGD(model, lr=0.1, momentum=0.9)

    @tg.compile
    def step(x, y):
        guess = tg.tanh(x @ model["W1"] + model["b1"]) @ model["W2"] + model["b2"]
        loss = tg.mean((guess - y) ** 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    with tg.use_backend("native"):
        for _ in range(3):
            step(rng.normal(size=(50, 2)), rng.normal(size=(50, 1)))
    return tg.draw(step, names=model)


PICTURES: dict[str, Callable[[], tg.Drawing]] = {
    function.__name__: function
    for function in (expression, perceptron, neuron, values, transformer_block, gpt, step)
}


def main() -> None:
    """Draw all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE, help="the folder to write to")
    parser.add_argument(
        "--ending", choices=["svg", "png", "dot", "txt"], default="svg", help="(%(default)s)"
    )
    parser.add_argument("--theme", choices=["light", "dark"], help="of .svg both by default")
    options = parser.parse_args()
    for name, draw in PICTURES.items():
        draw().save(options.out / f"{name}.{options.ending}", theme=options.theme)


if __name__ == "__main__":
    main()
