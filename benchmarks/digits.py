"""Train the network of examples/train_digits.py by convgrad and by PyTorch, epoch by epoch; or hash what it learns.

python benchmarks/digits.py --repeat 3 -o digits.csv
python benchmarks/digits.py --hash

Both train the same layers from the same weights on the same batches, in one process. Epochs are taken in turns, each
after steps of its own that change nothing. A ratio is the median of the other's time over convgrad's in the same turn;
the first epoch of a run, which may compile, does not count.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import numpy as np
import train_digits
from rows import asked, write_rows
from train_digits import Array

import convgrad
from convgrad.cli.bench.figures import Series, fastest, ratio
from convgrad.cli.bench.harness import settle
from convgrad.cli.bench.peers import find_peers, load
from convgrad.engines.llvm import isas
from convgrad.engines.settings import count, max_isa
from convgrad.errors import UnsupportedError
from convgrad.host import cpu_model, staying_on

HASHED_ON = (1, 2, 3)  # threads
PACKAGES = ("convgrad", "numpy", "torch")


@dataclass(frozen=True)
class Trainer:
    """Somebody's training, an epoch at a time; ``idle`` is a step that changes nothing; ``cores`` as a Contender's."""

    name: str
    epochs: Iterator[list[float]]
    idle: Callable[[], object]
    cores: Sequence[int] = ()

    def epoch(self) -> tuple[float, float, float]:
        """Return the seconds and both losses of the next epoch."""
        with staying_on(self.cores):
            settle(self.idle)
            begin = time.perf_counter()
            loss, reconstruction = next(self.epochs)
            return time.perf_counter() - begin, loss, reconstruction


def by_convgrad(images: Array, labels: Array, options: argparse.Namespace) -> Trainer:
    """Return convgrad's training: what the example does."""
    parameters = train_digits.initial(np.random.default_rng(options.seed))

    def idle() -> object:
        batch = slice(options.batch)
        _, dst, diff_dst = train_digits.step(parameters, images[batch], labels[batch])
        return train_digits.by_parameters(images[batch], dst, diff_dst)

    return Trainer("convgrad", train_digits.train(parameters, images, labels, options), idle)


def by_torch(images: Array, labels: Array, options: argparse.Namespace, threads: int) -> list[Trainer]:
    """Return PyTorch's trainings, one a layout."""
    cores = load(find_peers(["torch"])[0], threads).CORES
    torch, network = importlib.import_module("torch"), importlib.import_module("digits_torch")
    torch.set_num_threads(threads)
    made = []
    for layout in network.LAYOUTS:
        parameters = network.tensors(train_digits.initial(np.random.default_rng(options.seed)), layout)
        placed, named = network.pictures(images, layout), torch.from_numpy(labels)

        def idle(parameters: Any = parameters, placed: Any = placed, named: Any = named) -> None:
            network.step(
                parameters, placed[: options.batch], named[: options.batch]
            )  # an epoch begins without gradients

        epochs = network.train(parameters, placed, named, options)
        made.append(Trainer(f"torch {layout}", epochs, idle, cores))
    return made


# -- side by side ------------------------------------------------------------------------------------------------------


def turns(images: Array, labels: Array, options: argparse.Namespace, threads: int) -> Iterator[dict[str, Any]]:
    """Yield a row for every run, epoch and trainer."""
    for run in range(1, options.repeat + 1):
        trainers = [by_convgrad(images, labels, options), *by_torch(images, labels, options, threads)]
        for epoch in range(1, options.epochs + 1):
            for trainer in trainers:
                seconds, loss, reconstruction = trainer.epoch()
                row = {"run": run, "epoch": epoch, "by": trainer.name, "seconds": seconds}
                yield row | {"loss": loss, "reconstruction": reconstruction}


def summary(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the median time of an epoch by each, convgrad's ratio, and how far losses differ."""
    names = dict.fromkeys(row["by"] for row in rows)
    times = {name: [1e3 * r["seconds"] for r in rows if r["by"] == name and r["epoch"] > 1] for name in names}
    ours, *others = (Series(name, 0.0, tuple(taken)) for name, taken in times.items())
    for one in (ours, *others):
        yield f"{one.name:10} {one.median_ms:8.2f} ms an epoch"
    best = fastest(others)
    assert best is not None
    shares = [theirs / mine for mine, theirs in zip(ours.rounds_ms, best.rounds_ms, strict=True)]
    yield f"{ratio(ours, best):.2f} to {best.name} ({min(shares):.2f} to {max(shares):.2f} of {len(shares)} epochs)"
    mine = {(row["run"], row["epoch"]): row["loss"] for row in rows if row["by"] == ours.name}
    apart = max(abs(row["loss"] / mine[row["run"], row["epoch"]] - 1) for row in rows)
    yield f"losses differ by at most {apart:.1e} of themselves"


def compare(images: Array, labels: Array, options: argparse.Namespace) -> int:
    """Print every epoch's times and losses, then what they say; write them as CSV where asked."""
    threads, rows = count(options.threads), []
    print(f"{cpu_model()}, threads: {threads}; {len(images)} images, batches of {options.batch}")
    with convgrad.threads(threads):
        for row in turns(images, labels, options, threads):
            rows.append(row)
            words = f"loss {row['loss']:.4f}  reconstruction {row['reconstruction']:.4f}"
            print(
                f"run {row['run']} epoch {row['epoch']:2}  {row['by']:10} {row['seconds']:8.4f} s  {words}", flush=True
            )
    print("\n".join(summary(rows)))
    if options.output:
        run = {"threads": threads, "images": len(images), "batch": options.batch, "processor": cpu_model()}
        run |= {"date": datetime.now(UTC).isoformat(timespec="seconds")}
        run |= {f"{name}_version": metadata.version(name) for name in PACKAGES}
        write_rows(options.output, [row | run for row in rows])
    return 0


# -- one hash ----------------------------------------------------------------------------------------------------------


def hash_of(images: Array, labels: Array, options: argparse.Namespace, threads: int) -> str:
    """Return the SHA-256 of the trained parameters."""
    parameters = train_digits.initial(np.random.default_rng(options.seed))
    with convgrad.threads(threads):
        for _ in train_digits.train(parameters, images, labels, options):
            pass
    return hashlib.sha256(b"".join(parameters[name].tobytes() for name in sorted(parameters))).hexdigest()


def hashes(arguments: Sequence[str], options: argparse.Namespace) -> list[str]:
    """Return a line for every number of threads, of the instruction set that CONVGRAD_MAX_ISA names; else of all."""
    if max_isa() is not None:
        isa = isas.isa()
        if isa is None:
            sys.exit(f"NumPy's bits are its BLAS library's: {isas.why_no_isa()}")
        data = training_data(options)
        return [f"{hash_of(*data, options, threads)}  {isa.name}, threads {threads}" for threads in HASHED_ON]
    command, found = [sys.executable, __file__, *arguments], []
    environments = [os.environ | {"CONVGRAD_MAX_ISA": isa.name} for isa in isas.host_isas()]
    children = [subprocess.Popen(command, env=one, stdout=subprocess.PIPE, text=True) for one in environments]
    for child in children:
        lines = child.communicate()[0].splitlines()
        if child.returncode:
            sys.exit(f"{' '.join(command)}: exit code {child.returncode}")
        found += lines[: len(HASHED_ON)]
    return found


def print_hashes(arguments: Sequence[str], options: argparse.Namespace) -> int:
    """Print the hashes and whether they are one; return 1 where they are not."""
    lines = hashes(arguments, options)
    number = len({line.split()[0] for line in lines})
    print("\n".join(lines))
    print(f"one hash of {len(lines)} trainings" if number == 1 else f"{number} hashes of {len(lines)} trainings")
    return int(number != 1)


def training_data(options: argparse.Namespace) -> tuple[Array, Array]:
    """Return the first training images and their labels."""
    digits = train_digits.load("sklearn.datasets").load_digits()
    images, labels, *_ = train_digits.split_images(digits)
    return images[: options.images], labels[: options.images]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Train handwritten digits by convgrad and by PyTorch.")
    parser.add_argument("--hash", action="store_true", help="hash the trained weights, by threads and instruction sets")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--images", type=int, help="of those to train on, so many (default all)")
    parser.add_argument("--repeat", type=int, default=3, help="runs of so many epochs each")
    parser.add_argument("--threads", type=int, help="default: as convgrad chooses")
    words = sys.argv[1:] if arguments is None else arguments
    options = asked(parser, words)
    if options.hash:
        return print_hashes(words, options)
    if options.epochs < 2:
        parser.error("--epochs must be at least 2: the first does not count")
    try:
        find_peers(["torch"])
    except UnsupportedError as error:
        sys.exit(str(error))
    return compare(*training_data(options), options)


if __name__ == "__main__":
    sys.exit(main())
