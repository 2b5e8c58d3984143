"""The page of the operators of a training step, made from the table that `same_bits` uses.

``python -m tests.docs.step_page`` writes it. It needs PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.places import DOCS

PAGE = DOCS / "step_operators.md"
HEAD = """\
# Operators of a training step

You need this page if you want to compute one of these operators yourself, with the bits of
[`same_bits()`](training_step.md), for example in another framework. Each row defines operators of ATen, which all
functions, modules and optimizers of PyTorch call. The definition does not depend on threads, instruction set, memory
format or strides.

- **Operations.** Each operation of a formula rounds to f32 once, and a product is rounded before it is added, unless
  the formula says "fused". A formula "in f64" rounds to f64 after each operation instead.
- **Functions** "by f32 operations", such as exp, are sequences of additions, multiplications, divisions and fused
  multiply-adds. `functions.py` and `maps.py` in `src/convgrad/spec/elementwise/` have them as programs, which
  also run in NumPy.
- **Types.** bf16 and f16 tensors are converted to f32 first, and the result is rounded once. f64 tensors are accepted
  where the column of sums has "no sum".
- **Sums** in "f64 sections" have the order of [Numerics](numerics.md#operators-of-a-training-step). The positions are
  the indices over which the sum runs, in row-major order, because memory formats must not matter. The result is rounded
  to f32 once.
- **Error.** u is 2^-24, v is 2^-53, and h is the rounding depth of the sum. Each bound is that of one element, compared
  with the formula in exact arithmetic. One ulp of a number is 2^-23 times the largest power of two up to the
  number. For bf16 and f16 results, add the rounding of the type.

The in-place form and the `out` form of an operator have the same definition.

| operators | formula | order of sums | largest error |
|---|---|---|---|
"""


def _lines() -> Iterator[str]:
    from convgrad.torch.training.groups import ROWS  # noqa: PLC0415 - the page is read without PyTorch

    for row in sorted(ROWS, key=lambda row: row.names[0].strip("_")):
        names = ", ".join(f"`{name}`" for name in row.names)
        yield f"| {names} | {row.formula} | {row.order} | {row.bound} |\n"


def page() -> str:
    return HEAD + "".join(_lines())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
