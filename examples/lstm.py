"""Write documentation, letter by letter, with an LSTM that reads 500 letters at a time.

You learn `tg.scan` for a recurrent network: all letters of a passage are one entry of the tape, and
the gradient goes back through every one of them. Reading, writing and training are one function
`cell` in a loop: to write, a loop draws each letter and reads it next. `rnn.py` is a simpler
network over shorter passages. The text is what `help("topics")` lists in this Python; the yardstick
guesses each letter from the one before, by counting pairs.
"""

from __future__ import annotations

import math

import numpy as np
from _common import arguments, descend, parameters, plot_noisy, print_engine, pyplot, save
from _data import text

import tapegraph as tg
from tapegraph.optim import schedules

UNITS = 128
LENGTH = 500
BATCH = 16


def cell(model, carry, x):
    """The memory after a letter: what the network says of it, and what it keeps to itself."""
    said, kept = carry
    add, keep, say, new = np.split(x + said @ model.Wh, 4, axis=-1)
    kept = tg.sigmoid(keep + 1.0) * kept + tg.sigmoid(add) * tg.tanh(new)
    return tg.sigmoid(say) * tg.tanh(kept), kept


def read(model, letters):
    """The memory after the last letter, and scores of the next after each: (letters, passages)."""

    def turn(carry, x):
        carry = cell(model, carry, x)
        return carry, carry[0]

    blank = np.zeros((len(letters), UNITS), np.float32)
    carry, said = tg.scan(turn, (blank, blank), tg.gather(model.Wx, letters.T) + model.b)
    return carry, said @ model.Wy + model.c


def mean_bits(model, passages):
    """Bits a letter: the surprise at each letter, having read those before it in its passage."""
    _, scores = read(model, passages[:, :-1])
    return tg.softmax_crossentropy(scores, passages[:, 1:].T) / math.log(2)


@tg.no_grad()
def surprises(model, passages) -> np.ndarray:
    """Bits that each letter of each passage comes to, given those before: (letters, passages)."""
    _, scores = read(model, passages[:, :-1])
    chances = tg.softmax(scores).numpy()
    return -np.log2(np.take_along_axis(chances, passages[:, 1:].T[..., None], axis=-1)[..., 0])


def new_step(model, steps: int, compile: bool):
    """Make the training step: it takes passages, updates the model, and returns the loss."""
    optimizer = tg.Adam(vars(model), schedules.cosine(1e-2, steps))

    def step(passages):
        bits = mean_bits(model, passages)
        optimizer.zero_grad()
        bits.backward()
        tg.clip_grad_norm(optimizer.params, 1.0)
        optimizer.step()
        return bits

    return tg.compile(step) if compile else step


@tg.no_grad()
def write(model, data, opening: str, length: int) -> str:
    """Go on from an opening, each letter drawn as the network expects, a little more boldly."""

    def turn(carry, _):
        memory, scores = carry
        # The largest of scores plus Gumbel noise: a letter drawn by its chance.
        noise = -np.log(-np.log(tg.random.uniform(1e-6, 1 - 1e-6, scores.shape)))
        letter = np.argmax(1.5 * scores + noise, axis=-1)
        memory = cell(model, memory, tg.gather(model.Wx, letter) + model.b)
        return (memory, memory[0] @ model.Wy + model.c), letter

    memory, scores = read(model, np.array([[data.alphabet.index(letter) for letter in opening]]))
    _, letters = tg.scan(turn, (memory, scores[-1]), length=length - len(opening))
    return opening + data.letters(letters.numpy()[:, 0])


def draw(bits, yardstick: float, by_place: np.ndarray):
    """The loss, and how the letters already read help to guess the next."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4), layout="constrained")
    plot_noisy(left, bits, "training batches")
    left.axhline(yardstick, color="black", linestyle=":", label="test, pairs of letters")
    left.axhline(by_place.mean(), color="tab:orange", label="test, LSTM")
    left.set(xlabel="step", ylabel="bits a letter")
    left.legend()
    # Means over ever more letters, from the 1st, 2nd, 4th, 8th, ...
    edges = np.append(2 ** np.arange(math.ceil(math.log2(len(by_place)))), len(by_place) + 1)
    means = [part.mean() for part in np.split(by_place, edges[1:-1] - 1)]
    right.stairs(means, edges, color="tab:orange", linewidth=2, baseline=None)
    right.axhline(yardstick, color="black", linestyle=":")
    right.set(xscale="log", xlabel="letters read before", ylabel="bits a letter, test")
    return figure


def main() -> None:
    args = arguments(__doc__, picture="lstm.png", compile=True)
    rng = np.random.default_rng(args.seed)
    tg.random.seed(args.seed)
    data = text()
    n = len(data.alphabet)
    model = parameters(
        rng, Wx=(n, 4 * UNITS), Wh=(UNITS, 4 * UNITS), b=(4 * UNITS,), Wy=(UNITS, n), c=(n,)
    )
    length, steps = (50, 20) if args.quick else (LENGTH, 500)
    step = new_step(model, steps, args.compile)
    bits = descend(step, lambda: (data.windows(rng, BATCH, length + 1),), steps)
    passages = data.test_windows(length + 1)
    if args.quick:
        passages = passages[:20]
    by_place = surprises(model, passages).mean(axis=1)
    yardstick = data.bigram_bits()
    save(draw(bits, yardstick, by_place), args.out)
    print(f"\n{write(model, data, 'The ', 40 if args.quick else 400)}\n")
    print(f"test      {by_place.mean():.3f} bits a letter; {yardstick:.3f} by pairs of letters")
    print(f"training  {bits[0]:.3f} bits a letter at first, {np.mean(bits[-20:]):.3f} at last")
    print_engine(step)


if __name__ == "__main__":
    main()
