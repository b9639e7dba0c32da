"""Train a small GPT on Python's documentation, and let it write.

You learn the transformer in arrays: letters and places looked up with `gather`, heads of attention
that see no later letter, a layer of neurons, residuals and RMS norms; trained by `tg.Adam`, whose
rate warms up and decays, with gradients clipped, in one step that `tg.compile` makes a program of.
`microgpt.py` is the same network number by number. The text is what `help("topics")` lists in this
Python; the yardstick guesses each letter from the one before, by counting pairs.
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
from _common import arguments, descend, parameters, plot_noisy, print_engine, pyplot, save
from _data import text

import tapegraph as tg
from tapegraph.optim import schedules

LENGTH, WIDTH, HEADS, LAYERS = 64, 64, 4, 2
BATCH = 16
EARLIER = np.tri(LENGTH, dtype=bool)  # what a letter (row) may look at: itself and those before


def new_model(rng: np.random.Generator, letters: int) -> SimpleNamespace:
    shapes = {"letter": (letters, WIDTH), "place": (LENGTH, WIDTH)}
    for i in range(LAYERS):
        square = dict.fromkeys([f"Wq{i}", f"Wk{i}", f"Wv{i}", f"Wo{i}"], (WIDTH, WIDTH))
        shapes |= square | {f"W{i}": (WIDTH, 4 * WIDTH), f"V{i}": (4 * WIDTH, WIDTH)}
    return parameters(rng, **shapes, guess=(WIDTH, letters))


def normed(x):
    """Each row, scaled to a mean square of one."""
    return x * (tg.mean(x * x, axis=-1, keepdims=True) + 1e-5) ** -0.5


def split(x):
    """Let every head have its part of each row: (batch, heads, letters, width of a head)."""
    return x.reshape(len(x), -1, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)


def attention(model, i: int, x):
    """What the heads of a layer take from the letters so far, and how much from which."""
    q, k, v = (split(x @ vars(model)[f"{name}{i}"]) for name in ("Wq", "Wk", "Wv"))
    scores = q @ k.transpose(0, 1, 3, 2) * (HEADS / WIDTH) ** 0.5
    past = EARLIER[: x.shape[1], : x.shape[1]]
    weights = tg.softmax(tg.where(past, scores, -np.inf))
    mixed = (weights @ v).transpose(0, 2, 1, 3).reshape(*x.shape)
    return mixed @ vars(model)[f"Wo{i}"], weights


def logits(model, letters):
    """Scores of the letter after each letter of each passage, and each layer's attention."""
    x = tg.gather(model.letter, letters) + model.place[: letters.shape[1]]
    seen = []
    for i in range(LAYERS):
        mixed, weights = attention(model, i, normed(x))
        seen.append(weights)
        x = x + mixed
        x = x + tg.relu(normed(x) @ vars(model)[f"W{i}"]) @ vars(model)[f"V{i}"]
    return normed(x) @ model.guess, seen


def mean_bits(model, passages):
    """Bits a letter: the surprise at each letter, having seen those before it in its passage."""
    scores, _ = logits(model, passages[:, :-1])
    return tg.softmax_crossentropy(scores, passages[:, 1:]) / math.log(2)


def new_step(model, steps: int):
    """Make the training step: it takes passages, updates the model, and returns the loss."""
    warm_up = steps // 20
    rate = schedules.warmup(warm_up, schedules.cosine(3e-3, steps - warm_up))
    optimizer = tg.Adam(vars(model), rate, betas=(0.9, 0.99))

    def step(passages):
        bits = mean_bits(model, passages)
        optimizer.zero_grad()
        bits.backward()
        tg.clip_grad_norm(optimizer.params, 1.0)
        optimizer.step()
        return bits

    return step


@tg.no_grad()
def write(model, data, opening: str, length: int, rng: np.random.Generator) -> str:
    """Go on from an opening, each letter drawn as the model expects, a little more boldly."""
    written = opening
    while len(written) < length:
        letters = np.array([[data.alphabet.index(letter) for letter in written[-LENGTH:]]])
        scores, _ = logits(model, letters)
        chances = tg.softmax(1.4 * scores[0, -1].astype(np.float64)).data
        written += data.alphabet[rng.choice(len(chances), p=chances)]
    return written


def draw(bits, yardstick: float, bits_test: float, letters: str, weights):
    """The loss, and what each head of the last layer looks at from every letter of a passage."""
    figure = pyplot.figure(figsize=(13, 6.5), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1, 1.1])
    axis = left.subplots()
    plot_noisy(axis, bits, "training batches")
    axis.axhline(yardstick, color="black", linestyle=":", label="test, pairs of letters")
    axis.axhline(bits_test, color="tab:orange", label="test, GPT")
    axis.set(xlabel="step", ylabel="bits a letter")
    axis.legend()
    right.suptitle("attention in the last layer: from each letter (row) to those before; by head")
    names = letters.replace("\n", "¶")
    cells = right.subplots(2, HEADS // 2)
    for cell, seen in zip(cells.flat, weights, strict=True):
        shown = np.where(EARLIER, seen, np.nan)[: len(names), : len(names)]
        image = cell.imshow(shown, cmap="viridis", vmin=0, vmax=1)
        cell.set_xticks(range(len(names)), names, family="monospace", fontsize=7)
        cell.set_yticks(range(len(names)), names, family="monospace", fontsize=7)
    right.colorbar(image, ax=cells, label="weight", shrink=0.6)
    return figure


def main() -> None:
    args = arguments(__doc__, picture="gpt.png", compile=True)
    rng = np.random.default_rng(args.seed)
    data = text()
    model = new_model(rng, len(data.alphabet))
    steps = 20 if args.quick else 2500
    step = new_step(model, steps)
    if args.compile:
        step = tg.compile(step)
    bits = descend(step, lambda: (data.windows(rng, BATCH, LENGTH + 1),), steps)
    passages, shown = data.test_windows(LENGTH + 1), data.wordiest(LENGTH)
    if args.quick:
        passages = passages[:20]
    with tg.no_grad():
        parts = np.array_split(passages, 20)
        bits_test = np.mean([mean_bits(model, part).item() for part in parts])
        _, seen = logits(model, shown[None])
    yardstick = data.bigram_bits()
    save(draw(bits, yardstick, bits_test, data.letters(shown[:24]), seen[-1].data[0]), args.out)
    print(f"\n{write(model, data, 'The ', 40 if args.quick else 400, rng)}\n")
    print(f"test      {bits_test:.3f} bits a letter; {yardstick:.3f} by pairs of letters")
    print(f"training  {bits[0]:.3f} bits a letter at first, {np.mean(bits[-20:]):.3f} at last")
    print_engine(step)


if __name__ == "__main__":
    main()
