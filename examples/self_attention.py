"""Let the rows of a digit look at each other: self-attention, and what it is worth.

You learn scaled dot-product attention: every row of an image asks (a query), answers (a key) and
gives (a value), and a softmax decides who listens to whom. Trained twice on scikit-learn's digits:
with attention, and with every row listening to all rows alike, which leaves the sum of the rows.
"""

from __future__ import annotations

import math

import numpy as np
from _common import arguments, descend, parameters, print_engine, pyplot, save, sgd_step
from _data import digits

import tapegraph as tg
from tapegraph.optim import schedules

ROWS, PIXELS, WIDTH, CLASSES = 8, 8, 32, 10
BATCH = 64


def logits(model, images, focus: float):
    """The class scores of a batch of images, and who listened to whom: evenly where focus is 0."""
    rows = images.reshape(-1, ROWS, PIXELS) @ model.W + model.place
    scores = tg.batch_matmul(rows @ model.Wq, tg.transpose(rows @ model.Wk, axes=(0, 2, 1)))
    weights = tg.softmax(scores * (focus / math.sqrt(WIDTH)))
    heard = rows + tg.batch_matmul(weights, rows @ model.Wv)
    return tg.mean(heard, axis=1) @ model.Wy + model.b, weights


def train(train_set, focus: float, steps: int, rng: np.random.Generator, compile: bool):
    """Return a trained model, and the step that trained it."""
    model = parameters(
        rng,
        W=(PIXELS, WIDTH),
        place=(ROWS, WIDTH),
        Wq=(WIDTH, WIDTH),
        Wk=(WIDTH, WIDTH),
        Wv=(WIDTH, WIDTH),
        Wy=(WIDTH, CLASSES),
        b=(CLASSES,),
    )

    def surprise(model, images, labels):
        return tg.softmax_crossentropy(logits(model, images, focus)[0], labels)

    def draw_batch():
        chosen = rng.integers(len(train_set[0]), size=BATCH)
        return train_set[0][chosen], train_set[1][chosen]

    step = sgd_step(surprise, model, schedules.cosine(0.2, steps), compile=compile)
    descend(step, draw_batch, steps)
    return model, step


@tg.no_grad()
def test(model, test_set, focus: float):
    """The share of test digits that are recognised, and their attention."""
    scores, weights = logits(model, test_set[0], focus)
    return np.mean(scores.data.argmax(axis=1) == test_set[1]), weights.data


def draw(images, labels, weights):
    """One digit of each class beside the attention of its rows."""
    figure, cells = pyplot.subplots(4, 5, figsize=(11, 8.5), layout="constrained")
    figure.suptitle("digits, and how much each row (down) listens to each row (across)")
    for digit in range(CLASSES):
        i = np.argmax(labels == digit)
        image, map_ = cells[digit // 5 * 2 : digit // 5 * 2 + 2, digit % 5]
        image.imshow(images[i].reshape(ROWS, PIXELS), cmap="gray_r")
        image.axis("off")
        seen = map_.imshow(weights[i], cmap="viridis", vmin=0, vmax=1)
        map_.set_xticks([0, 7], ["top", "bottom"])
        map_.set_yticks([0, 7], ["top", "bottom"] if digit % 5 == 0 else ["", ""])
    figure.colorbar(seen, ax=cells, label="weight", shrink=0.4)
    return figure


def main() -> None:
    args = arguments(__doc__, picture="self_attention.png")
    rng = np.random.default_rng(args.seed)
    train_set, test_set = digits(rng)
    steps = 30 if args.quick else 3000
    alike, _ = train(train_set, 0.0, steps, rng, args.compile)
    model, step = train(train_set, 1.0, steps, rng, args.compile)
    accuracy, weights = test(model, test_set, 1.0)
    save(draw(*test_set, weights), args.out)
    print(f"accuracy  {accuracy:.2%} of {len(weights)} test digits with attention")
    print(f"          {test(alike, test_set, 0.0)[0]:.2%} with every row listening to all alike")
    print_engine(step)


if __name__ == "__main__":
    main()
