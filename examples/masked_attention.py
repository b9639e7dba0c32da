"""Guess the next letter by attention that must not look ahead.

You learn the causal mask: `tg.where` puts minus infinity on every later letter, softmax turns that
into exactly no attention, and no gradient flows back from it. The text is what `help("topics")`
lists in this Python; the yardstick guesses each letter from the one before, by counting pairs.
"""

from __future__ import annotations

import math

import numpy as np
from _common import arguments, descend, parameters, plot_noisy, print_engine, pyplot, save, sgd_step
from _data import text

import tapegraph as tg
from tapegraph.optim import schedules

LENGTH, WIDTH, HIDDEN = 32, 64, 128
BATCH = 32
EARLIER = np.tri(LENGTH, dtype=bool)  # what a letter (row) may look at: itself and those before


def logits(model, letters):
    """Scores of the letter after each letter of each passage, and who looked at whom."""
    x = tg.gather(model.letter, letters) + model.place
    scores = tg.batch_matmul(x @ model.Wq, tg.transpose(x @ model.Wk, axes=(0, 2, 1)))
    weights = tg.softmax(tg.where(EARLIER, scores / math.sqrt(WIDTH), -np.inf))
    x = x + tg.batch_matmul(weights, x @ model.Wv)
    x = x + tg.relu(x @ model.W1 + model.b1) @ model.W2
    return x @ model.Wy + model.c, weights


def mean_bits(model, passages):
    """Bits a letter: the surprise at each letter, having seen those before it in its passage."""
    scores, _ = logits(model, passages[:, :-1])
    return tg.softmax_crossentropy(scores, passages[:, 1:]) / math.log(2)


@tg.no_grad()
def leak(model, passages) -> float:
    """How far guesses in the first half move when the second half is changed."""
    half = LENGTH // 2
    changed = passages.copy()
    changed[:, half:] = passages[::-1, half:]
    before, after = (logits(model, letters)[0].data[:, :half] for letters in (passages, changed))
    return float(np.abs(after - before).max())


def draw(bits, yardstick: float, bits_test: float, letters: str, weights):
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(14, 6), layout="constrained")
    plot_noisy(left, bits, "training batches")
    left.axhline(yardstick, color="black", linestyle=":", label="test, pairs of letters")
    left.axhline(bits_test, color="tab:orange", label="test, attention")
    left.set(xlabel="step", ylabel="bits a letter")
    left.legend()
    image = right.imshow(np.where(EARLIER, weights, np.nan), cmap="viridis", vmin=0, vmax=1)
    figure.colorbar(image, label="weight", shrink=0.6)
    names = letters.replace("\n", "¶")
    right.set_xticks(range(LENGTH), names, family="monospace")
    right.set_yticks(range(LENGTH), names, family="monospace")
    right.set(xlabel="looked at", ylabel="looking", title="attention; blank is masked")
    return figure


def main() -> None:
    args = arguments(__doc__, picture="masked_attention.png")
    rng = np.random.default_rng(args.seed)
    data = text()
    n = len(data.alphabet)
    model = parameters(
        rng,
        letter=(n, WIDTH),
        place=(LENGTH, WIDTH),
        Wq=(WIDTH, WIDTH),
        Wk=(WIDTH, WIDTH),
        Wv=(WIDTH, WIDTH),
        W1=(WIDTH, HIDDEN),
        b1=(HIDDEN,),
        W2=(HIDDEN, WIDTH),
        Wy=(WIDTH, n),
        c=(n,),
    )
    steps = 20 if args.quick else 2500
    step = sgd_step(mean_bits, model, schedules.cosine(3.0, steps), clip=0.5, compile=args.compile)
    bits = descend(step, lambda: (data.windows(rng, BATCH, LENGTH + 1),), steps)
    passages, shown = data.test_windows(LENGTH + 1), data.wordiest(LENGTH)
    with tg.no_grad():
        bits_test = mean_bits(model, passages).item()
        _, weights = logits(model, shown[None])
    yardstick = data.bigram_bits()
    save(draw(bits, yardstick, bits_test, data.letters(shown), weights.data[0]), args.out)
    print(f"test      {bits_test:.3f} bits a letter; {yardstick:.3f} by pairs of letters")
    print(f"leak      {leak(model, passages[:, :-1])} from later letters to earlier guesses")
    print_engine(step)


if __name__ == "__main__":
    main()
