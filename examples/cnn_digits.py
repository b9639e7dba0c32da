"""Recognise digits with a small convolutional network, on the native engine.

You learn that the engines are interchangeable: `conv2d` and `max_pool2d` have no TensorFlow node in
this version, so `backward()` runs the whole tape natively, and says so. The data are scikit-learn's
digits; the yardstick is the nearest mean image.
"""

from __future__ import annotations

import numpy as np
from _common import arguments, descend, parameters, plot_noisy, print_engine, pyplot, save, sgd_step
from _data import digits

import tapegraph as tg
from tapegraph.optim import schedules

CLASSES = 10
BATCH = 32


def features(model, images):
    """What the two layers of kernels find: 8 maps of 8 x 8, then 16 of 4 x 4."""
    first = tg.relu(tg.conv2d(images.reshape(-1, 1, 8, 8), model.K1, pad=1))
    second = tg.relu(tg.conv2d(tg.max_pool2d(first, 2), model.K2, pad=1))
    return first, second


def logits(model, images):
    _, found = features(model, images)
    return tg.reshape(tg.max_pool2d(found, 2), (len(images), -1)) @ model.W + model.b


def surprise(model, images, labels):
    """How unlikely the model takes the true classes to be, on average."""
    return tg.softmax_crossentropy(logits(model, images), labels)


def nearest_mean(train_set, images) -> np.ndarray:
    """The class whose mean training image is closest."""
    means = np.stack([train_set[0][train_set[1] == c].mean(axis=0) for c in range(CLASSES)])
    return np.square(images[:, None] - means).sum(axis=2).argmin(axis=1)


def draw(model, losses, images, labels, predicted):
    """The loss, the first kernels, and what they find in a digit."""
    figure = pyplot.figure(figsize=(14, 5), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1, 2])
    axis = left.subplots()
    plot_noisy(axis, losses)
    axis.set(xlabel="step", ylabel="training loss", yscale="log")
    axis.set_title(f"test accuracy {np.mean(predicted == labels):.1%}")

    right.suptitle("digits (left); the first kernels (top); where each of them finds what it seeks")
    digits_shown = [np.argmax(labels == c) for c in (0, 4, 7)]
    with tg.no_grad():
        found, _ = features(model, images[digits_shown])
    cells = right.subplots(len(digits_shown) + 1, 9)
    for cell in cells.flat:
        cell.axis("off")
    limit = np.abs(model.K1.data).max()
    for kernel, cell in zip(model.K1.data[:, 0], cells[0, 1:], strict=True):
        weights = cell.imshow(kernel, cmap="RdBu", vmin=-limit, vmax=limit)
    right.colorbar(weights, ax=cells[0], label="weight")
    for i, maps, row in zip(digits_shown, found.data, cells[1:], strict=True):
        row[0].imshow(images[i].reshape(8, 8), cmap="gray_r")
        for map_, cell in zip(maps, row[1:], strict=True):
            shown = cell.imshow(map_, cmap="viridis", vmin=0, vmax=found.data.max())
    right.colorbar(shown, ax=cells[1:], label="activation")
    return figure


def main() -> None:
    args = arguments(__doc__, picture="cnn_digits.png")
    rng = np.random.default_rng(args.seed)
    train_set, (images, labels) = digits(rng)
    model = parameters(
        rng, K1=(8, 1, 3, 3), K2=(16, 8, 3, 3), W=(16 * 2 * 2, CLASSES), b=(CLASSES,)
    )

    def draw_batch():
        chosen = rng.integers(len(train_set[0]), size=BATCH)
        return train_set[0][chosen], train_set[1][chosen]

    steps = 20 if args.quick else 3000
    step = sgd_step(surprise, model, schedules.cosine(0.2, steps), compile=args.compile)
    losses = descend(step, draw_batch, steps)
    with tg.no_grad():
        predicted = logits(model, images).data.argmax(axis=1)
    save(draw(model, losses, images, labels, predicted), args.out)
    print(f"accuracy  {np.mean(predicted == labels):.2%} of {len(labels)} test digits")
    print(
        f"          {np.mean(nearest_mean(train_set, images) == labels):.2%} by nearest mean image"
    )
    print_engine(step)


if __name__ == "__main__":
    main()
