"""Train a classifier whose answer does not hang on any one pixel, by a penalty on gradients.

You learn double backpropagation: `tg.gradients(loss, [pixels], create_graph=True)` records what
the loss owes to each pixel, so its square is one more term to minimise. Two networks learn
scikit-learn's digits from the same batches, one with that term and one without. Then every test
image is attacked: all its pixels move a little the way that raises the loss.
"""

from __future__ import annotations

import numpy as np
from _common import arguments, descend, parameters, print_engine, pyplot, save, sgd_step
from _data import digits

import tapegraph as tg
from tapegraph.optim import schedules

CLASSES = 10
BATCH = 64
PENALTY = 1.0
SHIFTS = np.linspace(0, 0.3, 13)
ATTACK = 0.1  # how far a pixel moves in the figures that are printed, of its range from 0 to 1


def logits(model, images):
    h = tg.tanh(images @ model.W1 + model.b1)
    h = tg.tanh(h @ model.W2 + model.b2)
    return h @ model.W3 + model.b3


def surprise(model, images, labels):
    """How unlikely the model takes the true classes to be, on average."""
    return tg.softmax_crossentropy(logits(model, images), labels)


def slopes_by_pixel(model, images, labels, create_graph: bool):
    """What the summed surprise of a batch gains by each pixel of it."""
    shift = tg.param(np.zeros(images.shape, np.float32))
    loss = surprise(model, images + shift, labels) * len(images)
    (slopes,) = tg.gradients(loss, [shift], create_graph=create_graph)
    return slopes


def penalised(model, images, labels):
    """The surprise, and the mean square by which an image's pixels change its own."""
    slopes = slopes_by_pixel(model, images, labels, create_graph=True)
    penalty = tg.mean(tg.sum(slopes**2, axis=1))
    return surprise(model, images, labels) + PENALTY * penalty


def accuracy(model, images, labels) -> float:
    with tg.no_grad():
        return np.mean(logits(model, images).data.argmax(axis=1) == labels)


def attacked(images, slopes, shift: float):
    """Move every pixel as far as allowed, the way that raises the loss."""
    return np.clip(images + np.float32(shift) * np.sign(slopes), 0, 1)


def draw(curves, slopes, images):
    """Accuracy under attack; and some digits, with what the loss owes to each pixel."""
    figure = pyplot.figure(figsize=(13, 4), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1, 1.2])
    axis = left.subplots()
    for name, accuracies in curves.items():
        axis.plot(SHIFTS, accuracies, marker=".", label=name)
    axis.set(xlabel="how far pixels move", ylabel="accuracy", title="test digits under attack")
    axis.yaxis.set_major_formatter("{x:.0%}")
    lines, names = axis.get_legend_handles_labels()
    axis.legend(lines[::-1], names[::-1])  # in the order of the lines
    cells = right.subplots(len(slopes) + 1, 8)
    right.suptitle("digits (top), and by which pixels their loss changes, in each network")
    for row, pictures in zip(cells, [images, *slopes.values()], strict=True):
        for cell, picture in zip(row, pictures, strict=False):
            limit = np.abs(picture).max()  # of each its own: most slopes are small
            picture = picture.reshape(8, 8) / limit
            image = cell.imshow(picture, cmap="RdBu", vmin=-1, vmax=1)
            cell.set(xticks=[], yticks=[])
            cell.spines[:].set_visible(False)
    right.colorbar(image, ax=cells, label="of the largest in each", ticks=[-1, 0, 1])
    for row, name in zip(cells, ["pixels", *slopes], strict=True):
        row[0].set_ylabel(name)
    return figure


def main() -> None:
    args = arguments(__doc__, picture="gradient_penalty.png", compile=True)
    steps = 100 if args.quick else 2500
    curves, slopes, hits = {}, {}, {}
    for name, objective in {"plain": surprise, "penalised": penalised}.items():
        rng = np.random.default_rng(args.seed)
        train_set, (images, labels) = digits(rng)
        widths = {"W1": (64, 64), "b1": (64,), "W2": (64, 64), "b2": (64,)}
        model = parameters(rng, **widths, W3=(64, CLASSES), b3=(CLASSES,))

        def draw_batch(rng=rng, train_set=train_set):
            chosen = rng.integers(len(train_set[0]), size=BATCH)
            return train_set[0][chosen], train_set[1][chosen]

        step = sgd_step(
            objective, model, schedules.cosine(0.1, steps), clip=1.0, compile=args.compile
        )
        descend(step, draw_batch, steps)
        slopes[name] = slopes_by_pixel(model, images, labels, create_graph=False).data
        moved = (attacked(images, slopes[name], shift) for shift in (0, ATTACK, *SHIFTS))
        hits[name], *curves[name] = (accuracy(model, x, labels) for x in moved)
        hits[name] = hits[name], curves[name].pop(0)
    save(draw(curves, slopes, images), args.out)
    print(f"{'':>20} {'without':>8} {'with the penalty':>17}")
    norms = [np.sqrt(np.mean(np.sum(s**2, axis=1))) for s in slopes.values()]
    print(f"{'length of a gradient':>20} {norms[0]:8.3f} {norms[1]:17.3f}")
    print(f"{'accuracy':>20} {hits['plain'][0]:8.2%} {hits['penalised'][0]:17.2%}")
    print(f"{'under attack':>20} {hits['plain'][1]:8.2%} {hits['penalised'][1]:17.2%}")
    print_engine(step)


if __name__ == "__main__":
    main()
