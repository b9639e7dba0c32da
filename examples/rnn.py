"""Write documentation, letter by letter, with a recurrent network.

You learn how a loop becomes one tape: the network reads a passage letter by letter and carries its
memory along, and `backward()` runs back through every step. At the end, the loop in Python is
measured beside `tg.scan`, which makes one entry of it, with the same gradient: what differs most is
how long `tg.compile` takes. The text is what `help("topics")` lists in this Python; the yardstick
guesses each letter from the one before, by counting pairs.
"""

from __future__ import annotations

import math
import time
import tracemalloc

import numpy as np
from _common import arguments, descend, parameters, plot_noisy, print_engine, pyplot, save, sgd_step
from _data import text

import tapegraph as tg
from tapegraph.optim import schedules

UNITS = 128
LENGTH = 25
BATCH = 64


def cell(model, state, letters):
    """The network's memory after one letter of each passage."""
    return tg.tanh(tg.gather(model.Wx, letters) + state @ model.Wh + model.b)


def read(model, letters, state):
    """The network's memory after each letter; `letters` holds a passage a row."""
    for column in letters.T:
        state = cell(model, state, column)
        yield state


def read_by_scan(model, letters, state):
    """What `read` yields, stacked: the whole loop is one entry of the tape."""

    def turn(state, column):
        state = cell(model, state, column)
        return state, state

    return tg.scan(turn, state, letters.T)[1]


def expectations(model, passages, scan: bool = False):
    """Scores of the letter after each letter: all first letters of the passages, all second, ..."""
    blank = np.zeros((len(passages), UNITS), np.float32)
    if scan:
        states = read_by_scan(model, passages, blank).reshape(-1, UNITS)
    else:
        states = tg.concat(list(read(model, passages, blank)))
    return states @ model.Wy + model.c


def mean_bits(model, passages, scan: bool = False):
    """Bits a letter: the surprise at each letter, having read those before it in its passage."""
    scores = expectations(model, passages[:, :-1], scan)
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


def cost(model, passages, scan: bool) -> tuple[str, np.ndarray]:
    """What a gradient costs in NumPy, in words, and the gradient of `Wh`."""

    def gradient() -> None:
        tg.zero_grad(vars(model).values())
        mean_bits(model, passages, scan).backward()

    def seconds(run) -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    with tg.use_backend("native"):
        eager = min(seconds(gradient) for _ in range(5))
        tracemalloc.start()
        gradient()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        compiled = tg.compile(gradient)
        compiling = sum(seconds(compiled) for _ in range(3)) - 3 * seconds(compiled)
    words = f"{1e3 * eager:.1f} ms and {peak / 1e6:.1f} MB, {max(compiling, 0):.2f} s to compile"
    return words, model.Wh.grad.copy()


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
    for length in (LENGTH,) if args.quick else (LENGTH, 20 * LENGTH):
        passages = data.windows(rng, BATCH, length + 1)
        loop, expected = cost(model, passages, scan=False)
        scan, gradient = cost(model, passages, scan=True)
        np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6)
        print(f"loop      {loop}: a gradient over {length} letters")
        print(f"scan      {scan}")


if __name__ == "__main__":
    main()
