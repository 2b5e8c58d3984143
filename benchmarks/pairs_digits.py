"""Count how often bf16 terms are taken in pairs while the network of examples/train_digits.py trains in bf16.

python benchmarks/pairs_digits.py -o benchmarks/results/pairs_digits.csv

Each operand of each call is rounded to bf16, as its result is. Panels are counted by how their terms were taken, in
weight gradients, forwards and data gradients: while the network trains, and, with what it learned, in the gradients of
its first batch, scaled. Where the processor has no instruction for pairs, fused multiply-adds stand in for it: they
are taken of the same panels.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import ml_dtypes
import numpy as np
import train_digits
from digits import training_data
from rows import asked, write_rows
from train_digits import Array

import convgrad
from convgrad.engines.llvm import execute, isas
from convgrad.host import cpu_model
from convgrad.plan.machine import Isa

CALLS = (
    "convolution", "conv_transpose", "convolution_backward_data", "conv_transpose_backward_data",
    "convolution_backward_weights", "conv_transpose_backward_weights", "bias_add_backward",
)  # fmt: skip
SCALES = (0, -40, -66)  # powers of two
ROLES = {"weights": "weight gradients", "dst": "forwards", "src": "data gradients"}
Counts = dict[str, Counter[str]]


def in_bf16(function: Callable[..., Array]) -> Callable[..., Array]:
    """Return a function whose operands are rounded to bf16, as its result is; what is f32 around it stays so."""

    def call(*operands: Any, **options: Any) -> Array:
        rounded = [
            each.astype(ml_dtypes.bfloat16) if isinstance(each, np.ndarray) and each.dtype == np.float32 else each
            for each in operands
        ]
        return function(*rounded, **options).astype(np.float32)

    return call


def counted() -> Counts:
    """Return how many panels all calls so far took in pairs and how many not, by what was solved for."""
    found: Counts = {role: Counter() for role in ROLES}
    for one in list(execute._kept.values()):
        if one.paths is not None and one.solves_for in found:
            pairs, single = one.paths.tolist()
            found[one.solves_for].update(pairs=pairs, single=single, calls=1)
    return found


def with_pairs() -> Isa:
    """Return this machine's instruction set, with pairs."""
    isa = isas.isa()
    if isa is None:
        sys.exit(f"there are no kernels: {isas.why_no_isa()}")
    return isa if isa.pairs else replace(isa, name=f"{isa.name}, pairs fused", pairs="fused")


def rows_of(what: str, before: Counts, isa: Isa) -> list[dict[str, Any]]:
    """Return a row a role, of what was counted since."""
    rows = []
    for role, now in counted().items():
        pairs, single = (now[path] - before[role][path] for path in ("pairs", "single"))
        share = 100 * single / (pairs + single) if pairs + single else 0.0
        print(f"{what:28} {ROLES[role]:18} {pairs:8} panels in pairs, {single:6} one by one: {share:.2f} %")
        row = {"what": what, "of": ROLES[role], "pairs": pairs, "single": single, "single_percent": f"{share:.2f}"}
        rows.append(row | {"instruction_set": isa.name, "processor": cpu_model()})
    return rows


def main() -> int:
    """Train, then scale; print and write what was counted."""
    parser = argparse.ArgumentParser(prog="pairs_digits.py", description="Count panels by how bf16 terms are taken.")
    parser.add_argument("--epochs", type=int, default=4, help="(default 4)")
    parser.add_argument("--images", type=int, help="how many images (default all)")
    parser.add_argument("--batch", type=int, default=64, help="images a batch (default 64)")
    parser.add_argument("--seed", type=int, default=0, help="(default 0)")
    options = asked(parser)
    isa = with_pairs()
    isas.isa = lambda: isa
    train_digits.convgrad = SimpleNamespace(**{name: in_bf16(getattr(convgrad, name)) for name in CALLS})  # type: ignore[attr-defined]
    images, labels = training_data(options)
    parameters, before = train_digits.initial(np.random.default_rng(options.seed)), counted()
    for epoch, (loss, _) in enumerate(train_digits.train(parameters, images, labels, options), 1):
        print(f"epoch {epoch}: loss {loss:.4f}")
    rows = rows_of(f"training, {options.epochs} epochs", before, isa)
    batch = slice(options.batch)
    for scale in SCALES:
        before, factor = counted(), np.float32(2.0**scale)
        dst = train_digits.forward(parameters, images[batch])
        _, diff_digit = train_digits.cross_entropy(dst["digit"], labels[batch])
        _, diff_picture = train_digits.squared_error(dst["picture"], images[batch])
        diffs = train_digits.backward(parameters, dst, diff_digit * factor, diff_picture * factor)
        train_digits.by_parameters(images[batch], dst, diffs)
        rows += rows_of(f"gradients times 2^{scale}", before, isa)
    if options.output:
        write_rows(options.output, rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
