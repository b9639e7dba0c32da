"""Train one model on several processes, and compare it with one process that sees everything.

    mpiexec -n 2 python -m mpi4py examples/data_parallel.py

You learn that ranks which each take a part of every batch, and average their gradients by one
all-reduce a step, are one rank with the whole batch: the difference is that of the order in which
numbers are added up. The parts are uneven, so each counts by its size. The data are scikit-learn's
1,797 scanned digits; started without mpiexec there is one rank, which takes all of each batch.
"""

from __future__ import annotations

import time

import numpy as np
from _common import arguments, extra, print_engine, progress, pyplot, save
from _data import digits

import tapegraph as tg

with extra("distributed"):
    from mpi4py import MPI

BATCH = 64
HIDDEN = 48
LR = 0.01


def new_parameters(seed: int) -> dict[str, tg.Tensor]:
    rng = np.random.default_rng(seed)
    return {
        "W1": tg.param(rng.normal(0, 1 / 8, (64, HIDDEN))),
        "b1": tg.param(np.zeros(HIDDEN)),
        "W2": tg.param(rng.normal(0, HIDDEN**-0.5, (HIDDEN, 10))),
        "b2": tg.param(np.zeros(10)),
    }


def logits(model, images):
    return tg.tanh(images @ model["W1"] + model["b1"]) @ model["W2"] + model["b2"]


def train(comm, train_set, steps: int, seed: int, compile: bool):
    """Train on this rank's part of each batch; return the model, the step, losses and seconds."""
    model = new_parameters(seed)
    parallel = tg.distributed.DataParallel(tg.Adam(model, LR), comm)

    def step(images, labels):
        loss = tg.softmax_crossentropy(logits(model, images), labels)
        parallel.zero_grad()
        loss.backward()
        parallel.step(weight=len(images))
        return loss

    if compile:
        step = tg.compile(step)
    images, labels = train_set
    rng = np.random.default_rng(seed)  # all ranks draw the same batches, and take parts of them
    losses, seconds = [], []
    rounds = range(steps)
    for _ in progress(rounds, f"{comm.size} rank(s)") if comm.rank == 0 else rounds:
        batch = rng.integers(len(images), size=BATCH)
        part = np.array_split(batch, comm.size)[comm.rank]
        start = time.perf_counter()
        loss = step(images[part], labels[part]).item()
        seconds.append(time.perf_counter() - start)
        losses.append(comm.allreduce(loss * len(part)) / BATCH)  # for the curve alone
    return model, step, np.array(losses), np.median(seconds)


def accuracy(model, test_set) -> float:
    images, labels = test_set
    with tg.no_grad():
        return float(np.mean(logits(model, images).data.argmax(axis=1) == labels))


def draw(size: int, losses, alone, steps: int):
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4), layout="constrained")
    ranks = "1 process" if size == 1 else f"{size} processes, a part each"
    left.semilogy(losses, linewidth=2.5, alpha=0.5, label=ranks)
    left.semilogy(alone, color="black", linewidth=0.7, label="alone, the whole batch")
    left.set(xlabel="step", ylabel="loss of the batch")
    left.legend()
    apart = np.abs(losses - alone)
    right.plot(range(steps), apart, ".", markersize=3)
    right.set(
        xlabel="step", ylabel="difference of the losses", ylim=(0, None if apart.any() else 1)
    )
    if not apart.any():
        right.set_yticks([0])
        right.text(0.5, 0.5, "none: equal to the last bit", ha="center", transform=right.transAxes)
    return figure


def main() -> None:
    args = arguments(__doc__, picture="data_parallel.png", compile=True)
    comm = MPI.COMM_WORLD
    (images, labels), test_set = digits(np.random.default_rng(args.seed))
    train_set = images.astype(np.float64), labels
    run = (train_set, 60 if args.quick else 600, args.seed, args.compile)
    model, step, losses, seconds = train(comm, *run)
    if comm.rank != 0:
        return
    print(f"ranks     {comm.size}, {1000 * seconds:.2f} ms a step")
    print(f"accuracy  {accuracy(model, test_set):.2%} of {len(test_set[0])} test digits")
    alone, _, losses_alone, _ = train(MPI.COMM_SELF, *run)
    apart = max(np.abs(model[name].data - alone[name].data).max() for name in model)
    print(f"apart     {apart:.1e}, the parameters of {comm.size} rank(s) and of one")
    save(draw(comm.size, losses, losses_alone, run[1]), args.out)
    print_engine(step)


if __name__ == "__main__":
    main()
