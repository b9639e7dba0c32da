"""Teach a GPT made of single numbers to spell.

You learn that a transformer is nothing but arithmetic on scalars: 4,064 `tg.Value`s, which look up
letters and places, attend to the letters before, pass through a layer of neurons, and guess the
next letter. A letter goes in as a row of 26 zeros and a one, so that looking it up is arithmetic
too: then every word is the same program, and `tg.compile` runs it level by level, as vectors. The
words are those that Python's documentation is written in (`help("topics")`); a tenth of them is
kept for the test. The yardstick guesses each letter from the one before, by counting pairs.
Scalars have one engine, their own, whatever `--backend` says.
"""

from __future__ import annotations

import math
import re
import time

import numpy as np
from _common import arguments, plot_noisy, print_engine, progress, pyplot, save
from _data import DOCUMENTATION

import tapegraph as tg
from tapegraph import Value, vsum
from tapegraph.optim import schedules

ALPHABET = ".abcdefghijklmnopqrstuvwxyz"  # the dot stands before and after a word
LENGTH = 8  # places: a word of seven letters, and what ends it
WIDTH = 16
HEADS = 4


def documentation_words(rng: np.random.Generator) -> tuple[list[str], list[str]]:
    """The words of three to seven letters, each once: for training, and for the test."""
    words = sorted(set(re.findall(r"\b[a-z]{3,7}\b", DOCUMENTATION)))
    rng.shuffle(words)
    cut = len(words) // 10
    return words[cut:], words[:cut]


def encoded(word: str):
    """What goes in at each place, the letter that follows it, and how much that counts."""
    one_hot = np.eye(len(ALPHABET))
    places = [ALPHABET.index(letter) for letter in f".{word}.".ljust(LENGTH + 1, ".")]
    counts = np.arange(LENGTH) <= len(word)
    return one_hot[places[:-1]], one_hot[places[1:]], counts / counts.sum()


# -- the model, from numbers up ------------------------------------------------------------------


def new_model(rng: np.random.Generator):
    def matrix(rows: int, columns: int, scale: float = 1.0):
        deviation = scale / math.sqrt(columns)
        return [[Value(x) for x in row] for row in rng.normal(0, deviation, (rows, columns))]

    return {
        "letter": matrix(WIDTH, len(ALPHABET)),
        "place": matrix(LENGTH, WIDTH),
        "query": matrix(WIDTH, WIDTH),
        "key": matrix(WIDTH, WIDTH),
        "value": matrix(WIDTH, WIDTH),
        "out": matrix(WIDTH, WIDTH, 0.2),
        "up": matrix(4 * WIDTH, WIDTH),
        "down": matrix(WIDTH, 4 * WIDTH, 0.2),
        "guess": matrix(len(ALPHABET), WIDTH),
    }


def dot(xs, ys):
    return vsum(x * y for x, y in zip(xs, ys, strict=True))


def times(matrix, xs):
    return [dot(row, xs) for row in matrix]


def plus(xs, ys):
    return [x + y for x, y in zip(xs, ys, strict=True)]


def normed(xs):
    """The numbers, scaled to a mean square of one."""
    scale = (dot(xs, xs) * (1 / len(xs)) + 1e-5) ** -0.5
    return [x * scale for x in xs]


def softmax(xs):
    # Normed numbers went in, so no power is too large.
    powers = [x.exp() for x in xs]
    share = vsum(powers) ** -1
    return [power * share for power in powers]


def attention(query, keys, values):
    """What one head takes from each place so far, by how well its key fits."""
    weights = softmax([dot(query, key) * len(query) ** -0.5 for key in keys])
    return [dot(weights, column) for column in zip(*values, strict=True)]


def chances(model, letters):
    """The chance of each letter to be the next, place by place."""
    heads = [slice(i, i + WIDTH // HEADS) for i in range(0, WIDTH, WIDTH // HEADS)]
    keys, values, found = [], [], []
    for letter, place in zip(letters, model["place"], strict=False):
        x = normed(plus(times(model["letter"], [Value(one) for one in letter]), place))
        h = normed(x)
        query = times(model["query"], h)
        keys.append(times(model["key"], h))
        values.append(times(model["value"], h))
        mixed = []
        for head in heads:
            mixed += attention(query[head], [k[head] for k in keys], [v[head] for v in values])
        x = plus(x, times(model["out"], mixed))
        hidden = [h.relu() for h in times(model["up"], normed(x))]
        x = plus(x, times(model["down"], hidden))
        found.append(softmax(times(model["guess"], normed(x))))
    return found


def mean_bits(model, letters, following, counts):
    """Bits a letter: the surprise at each letter of a word, having seen those before it."""
    guesses = chances(model, letters)
    right = [dot(row, [Value(one) for one in y]) for row, y in zip(guesses, following, strict=True)]
    return vsum(p.log() * count for p, count in zip(right, counts, strict=True)) * (
        -1 / math.log(2)
    )


# -- training --------------------------------------------------------------------------------------


def new_step(model):
    """Make the training step: it takes an encoded word, a learning rate and the number of the step,
    updates the model by Adam, and returns the loss.
    """
    parameters = [p for matrix in model.values() for row in matrix for p in row]
    moments = [(Value(0.0), Value(0.0)) for _ in parameters]

    def step(letters, following, counts, rate, number):
        bits = mean_bits(model, letters, following, counts)
        for p in parameters:
            p.grad = 0.0
        bits.backward()
        for p, (mean, square) in zip(parameters, moments, strict=True):
            mean.data = 0.9 * mean.data + 0.1 * p.grad
            square.data = 0.99 * square.data + 0.01 * (p.grad * p.grad)
            unbiased, spread = mean.data / (1 - 0.9**number), square.data / (1 - 0.99**number)
            p.data -= rate * unbiased / (spread**0.5 + 1e-8)
        return bits

    return step


def seconds_a_step(compiled, words):
    """Medians of the eager steps of a model of their own and of compiled steps, taken in turns."""
    taken = {new_step(new_model(np.random.default_rng(0))): [], compiled: []}
    for word in words:
        for step, seconds in taken.items():
            start = time.perf_counter()
            step(*encoded(word), 0.0, 1.0)
            seconds.append(time.perf_counter() - start)
    return [np.median(seconds) for seconds in taken.values()]


def bigram_bits(words, test_words) -> float:
    """Bits a letter of the test words, guessed from the one before by counting pairs."""
    pairs = np.ones((len(ALPHABET), len(ALPHABET)))
    for word in words:
        for a, b in zip(f".{word}", f"{word}.", strict=True):
            pairs[ALPHABET.index(a), ALPHABET.index(b)] += 1
    shares = pairs / pairs.sum(axis=1, keepdims=True)
    bits = [np.einsum("ti,ij,tj->t", x, shares, y) for x, y, _ in map(encoded, test_words)]
    weights = [counts for _, _, counts in map(encoded, test_words)]
    return -np.mean([np.sum(w * np.log2(b)) for w, b in zip(weights, bits, strict=True)])


@tg.no_grad()
def spell(model, rng: np.random.Generator, boldness: float = 1.5) -> str:
    """Spell a word, each letter drawn as the model expects, a little more boldly."""
    word = ""
    while len(word) < LENGTH - 1 and not word.endswith("."):
        letters, *_ = encoded(word)
        *_, row = chances(model, letters[: len(word) + 1])
        weights = np.array([p.data for p in row]) ** boldness
        word += ALPHABET[rng.choice(len(ALPHABET), p=weights / weights.sum())]
    return word.rstrip(".")


@tg.no_grad()
def guesses_for(model, word: str) -> np.ndarray:
    letters, *_ = encoded(word)
    return np.array([[p.data for p in row] for row in chances(model, letters[: len(word) + 1])])


def draw(bits, yardstick: float, bits_test: float, words, guesses):
    figure = pyplot.figure(figsize=(15, 5), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1, 1.7])
    axis = left.subplots()
    plot_noisy(axis, bits, "training words")
    axis.axhline(yardstick, color="black", linestyle=":", label="test, pairs of letters")
    axis.axhline(bits_test, color="tab:orange", label="test, GPT")
    axis.set(xlabel="step", ylabel="bits a letter", ylim=(1, 6))
    axis.legend()
    right.suptitle("test words: the chance of each letter, having seen those before it")
    cells = right.subplots(1, len(words))
    for cell, word, rows in zip(cells, words, guesses, strict=True):
        image = cell.imshow(rows.T, cmap="viridis", vmin=0, vmax=1, aspect="auto")
        cell.set_xticks(range(len(word) + 1), f"{word}.", family="monospace")
        cell.set_yticks(range(len(ALPHABET)), ALPHABET, family="monospace", fontsize=7)
        places = [ALPHABET.index(letter) for letter in f"{word}."]
        cell.plot(places, "s", color="none", markeredgecolor="white", markersize=7)
    right.colorbar(image, ax=cells, label="chance (white: the letter that came)")
    return figure


def main() -> None:
    args = arguments(__doc__, picture="microgpt.png", compile=True)
    rng = np.random.default_rng(args.seed)
    words, test_words = documentation_words(rng)
    model = new_model(rng)
    steps = 3 if args.quick else 5000
    step = new_step(model)
    rate = schedules.warmup(50, schedules.cosine(0.01, steps))
    measure = tg.no_grad(lambda *word: mean_bits(model, *word))
    if args.compile:
        step, measure = tg.compile(step), tg.compile(measure)
    bits = []
    for i in (bar := progress(range(steps), "training")):
        bits.append(step(*encoded(rng.choice(words)), rate(i), i + 1.0).data)
        bar.set_postfix(bits=f"{np.mean(bits[-100:]):.3f}")
    if args.quick:
        test_words = test_words[:3]
    bits_test = np.mean([measure(*encoded(word)).data for word in test_words])
    yardstick = bigram_bits(words, test_words)
    shown = sorted(test_words, key=len)[-4:]
    save(draw(bits, yardstick, bits_test, shown, [guesses_for(model, w) for w in shown]), args.out)
    print("spelled  ", *(spell(model, rng) for _ in range(1 if args.quick else 20)))
    print(f"test      {bits_test:.3f} bits a letter; {yardstick:.3f} by pairs of letters")
    if args.compile:
        print_engine(step)
        eager, compiled = seconds_a_step(step, words[: 1 if args.quick else 20])
        print(
            f"compiled  {eager / compiled:.1f} times as fast as eager steps "
            f"({1000 * compiled:.2f} against {1000 * eager:.2f} ms a step)"
        )


if __name__ == "__main__":
    main()
