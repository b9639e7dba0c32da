"""Write documentation, letter by letter, with a recurrent network.

You learn how a loop becomes one tape: the network reads a passage letter by letter and carries its
memory along, and `backward()` runs back through every step. The text is what `help("topics")` lists
in this Python; the yardstick guesses each letter from the one before, by counting pairs.
"""

from __future__ import annotations

import math

import numpy as np
from _common import arguments, descend, parameters, plot_noisy, print_engine, pyplot, save, sgd_step
from _data import text

import tapegraph as tg
from tapegraph.optim import schedules

UNITS = 128
LENGTH = 25
BATCH = 64


def read(model, letters, state):
    """The network's memory after each letter; `letters` holds a passage a row."""
    for column in letters.T:
        state = tg.tanh(tg.gather(model.Wx, column) + state @ model.Wh + model.b)
        yield state


def expectations(model, passages):
    """Scores of the letter after each letter: all first letters of the passages, all second, ..."""
    blank = np.zeros((len(passages), UNITS), np.float32)
    return tg.concat(list(read(model, passages, blank))) @ model.Wy + model.c


def mean_bits(model, passages):
    """Bits a letter: the surprise at each letter, having read those before it in its passage."""
    scores = expectations(model, passages[:, :-1])
    return tg.softmax_crossentropy(scores, passages[:, 1:].T.ravel()) / math.log(2)


@tg.no_grad()
def write(model, alphabet: str, opening: str, length: int, rng: np.random.Generator) -> str:
    """Go on from an opening, each letter drawn as the network expects, a little more boldly."""
    written, unread = opening, opening
    state = np.zeros((1, UNITS), np.float32)
    while len(written) < length:
        letters = np.array([[alphabet.index(letter) for letter in unread]])
        *_, state = read(model, letters, state)
        chances = tg.softmax(1.5 * (state @ model.Wy + model.c)).data[0]
        unread = alphabet[rng.choice(len(alphabet), p=chances / chances.sum(dtype=float))]
        written += unread
    return written


@tg.no_grad()
def surprises(model, passage) -> np.ndarray:
    """Bits each letter of a passage but the first comes to, given those before it."""
    chances = tg.softmax(expectations(model, passage[None, :-1])).data
    return -np.log2(chances[np.arange(len(chances)), passage[1:]])


def draw(bits, yardstick: float, bits_test: float, passage: str, surprise):
    figure, (left, right) = pyplot.subplots(
        1, 2, figsize=(15, 4.5), width_ratios=[1, 2.2], layout="constrained"
    )
    plot_noisy(left, bits, "training batches")
    left.axhline(yardstick, color="black", linestyle=":", label="test, pairs of letters")
    left.axhline(bits_test, color="tab:orange", label="test, network")
    left.set(xlabel="step", ylabel="bits a letter")
    left.legend()
    right.bar(range(1, len(passage)), surprise, color="tab:orange")
    right.set_xticks(range(len(passage)), passage.replace("\n", "¶"), family="monospace")
    right.set(ylabel="surprise in bits", title="how unexpected each letter of a test passage is")
    return figure


def main() -> None:
    args = arguments(__doc__, picture="rnn.png")
    rng = np.random.default_rng(args.seed)
    data = text()
    n = len(data.alphabet)
    model = parameters(rng, Wx=(n, UNITS), Wh=(UNITS, UNITS), b=(UNITS,), Wy=(UNITS, n), c=(n,))
    steps = 20 if args.quick else 2000
    step = sgd_step(mean_bits, model, schedules.cosine(2.0, steps), clip=0.5, compile=args.compile)
    bits = descend(step, lambda: (data.windows(rng, BATCH, LENGTH + 1),), steps)
    with tg.no_grad():
        bits_test = mean_bits(model, data.test_windows(LENGTH + 1)).item()
    yardstick = data.bigram_bits()
    shown = data.wordiest(60)
    figure = draw(bits, yardstick, bits_test, data.letters(shown), surprises(model, shown))
    save(figure, args.out)
    print(f"\n{write(model, data.alphabet, 'The ', 300, rng)}\n")
    print(f"test      {bits_test:.3f} bits a letter; {yardstick:.3f} by pairs of letters")
    print_engine(step)


if __name__ == "__main__":
    main()
