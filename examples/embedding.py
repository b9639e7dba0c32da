"""Place words so that those used alike lie together.

You learn the embedding lookup: `tg.gather` takes the rows of a table that a text names, and sends
back gradients to just these rows. Each word is guessed from its neighbours on both sides; the text
is what `help("topics")` lists in this Python, the yardstick how often each word occurs.
"""

from __future__ import annotations

import math
import re
from collections import Counter

import numpy as np
from _common import arguments, descend, extra, parameters, print_engine, pyplot, save, sgd_step
from _data import DOCUMENTATION

import tapegraph as tg
from tapegraph.optim import schedules

with extra():
    from sklearn.manifold import TSNE

WORDS, WIDTH = 500, 32
REACH = 3  # neighbours on each side
BATCH = 256
SHOWN = 150


def lessons():
    """The commonest words, and each word of the text (as a rank among them) with its neighbours."""
    words = re.findall(r"[a-z_]+", DOCUMENTATION.lower())
    vocabulary = [word for word, _ in Counter(words).most_common(WORDS)]
    rank = {word: i for i, word in enumerate(vocabulary)}
    ranks = np.array([rank[word] for word in words if word in rank])
    passages = np.lib.stride_tricks.sliding_window_view(ranks, 2 * REACH + 1)
    return vocabulary, np.delete(passages, REACH, axis=1), passages[:, REACH]


def mean_bits(model, neighbours, words):
    """Bits a word: the surprise at each, having seen its neighbours."""
    around = tg.mean(tg.gather(model.table, neighbours), axis=1)
    return tg.softmax_crossentropy(around @ model.W + model.b, words) / math.log(2)


def frequency_bits(train_words, test_words) -> float:
    """Bits a word of the test text, guessed from how often it occurs."""
    counts = np.bincount(train_words, minlength=WORDS) + 1
    return -np.mean(np.log2(counts / counts.sum())[test_words])


def nearest(table: np.ndarray, count: int) -> np.ndarray:
    """The words whose rows point most alike, for each word."""
    directions = table / np.linalg.norm(table, axis=1, keepdims=True)
    likeness = directions @ directions.T
    np.fill_diagonal(likeness, -np.inf)
    return np.argsort(-likeness, axis=1)[:, :count]


def draw(vocabulary, table: np.ndarray, seed: int, iterations: int):
    """The commonest words on a plane that keeps neighbours together."""
    plane = TSNE(metric="cosine", perplexity=8, random_state=seed, max_iter=iterations)
    points = plane.fit_transform(table[:SHOWN])
    figure, axis = pyplot.subplots(figsize=(12, 9), layout="constrained")
    axis.set(title=f"the {SHOWN} commonest words: near are those used alike", xticks=[], yticks=[])
    axis.set_frame_on(False)
    dots = axis.scatter(*points.T, s=8, c=np.arange(1, SHOWN + 1), cmap="viridis_r")
    bar = figure.colorbar(dots, label="place in the order of frequency", shrink=0.5)
    bar.ax.invert_yaxis()
    figure.canvas.draw()  # where things are is known from here on
    taken = []
    for word, point in zip(vocabulary, points, strict=False):
        label(axis, word, point, taken)
    return figure


def label(axis, word: str, point, taken: list) -> None:
    """Write a word beside its point, on the side where the fewest words are in the way."""
    sides = [((0, 3), "center", "bottom"), ((0, -3), "center", "top")]
    sides += [((4, 0), "left", "center"), ((-4, 0), "right", "center")]
    sides += [((3, 3), "left", "bottom"), ((-3, 3), "right", "bottom")]
    sides += [((3, -3), "left", "top"), ((-3, -3), "right", "top")]
    tried = []
    for offset, ha, va in sides:
        text = axis.annotate(
            word, point, offset, textcoords="offset points", fontsize=8, ha=ha, va=va
        )
        box = text.get_window_extent()
        tried.append((box.count_overlaps(taken), len(tried), text, box))
    _, _, chosen, box = min(tried, key=lambda row: row[:2])
    for _, _, text, _ in tried:
        if text is not chosen:
            text.remove()
    taken.append(box)


def main() -> None:
    args = arguments(__doc__, picture="embedding.png")
    rng = np.random.default_rng(args.seed)
    vocabulary, neighbours, words = lessons()
    cut = len(words) * 9 // 10
    model = parameters(rng, table=(WORDS, WIDTH), W=(WIDTH, WORDS), b=(WORDS,))

    def draw_batch():
        chosen = rng.integers(cut, size=BATCH)
        return neighbours[chosen], words[chosen]

    steps = 20 if args.quick else 2500
    step = sgd_step(mean_bits, model, schedules.cosine(15.0, steps), compile=args.compile)
    descend(step, draw_batch, steps)
    with tg.no_grad():
        bits = mean_bits(model, neighbours[cut:], words[cut:]).item()
    iterations = 250 if args.quick else 1000
    save(draw(vocabulary, model.table.data, args.seed, iterations), args.out)
    friends = nearest(model.table.data, 5)
    for word in ("list", "function", "class", "must", "the"):
        alike = ", ".join(vocabulary[i] for i in friends[vocabulary.index(word)])
        print(f"{word:<9} is used like {alike}")
    yardstick = frequency_bits(words[:cut], words[cut:])
    print(f"test      {bits:.3f} bits a word; {yardstick:.3f} by frequency")
    print_engine(step)


if __name__ == "__main__":
    main()
