"""Gates that decide whether a kernel is right, compared: mutants that each catches, right kernels that it rejects.

``python -m campaigns gates -o benchmarks/results/gates.csv`` computes 60 mutants and 30 right kernels on six small
layers. ``gate_mutants.py`` and ``gate_kernels.py`` of ``tests/verify`` have them. A gate draws operands for each layer
that a kernel supports, and rejects the kernel if it rejects one result. References are exact sums in float64, rounded
to the type of the result.
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from campaigns.command import parser_of
from convgrad.formats import BF16, F32, TF32, round_to
from convgrad.verify import check
from tests.verify.gate_kernels import KERNELS
from tests.verify.gate_mutants import MUTANTS
from tests.verify.plants import Array, Plant, plant, plant_of

LINES = (
    "BWD_W f32 NXC mb8ic16ih7oc16oh7kh1",
    "FWD_D f32 NXC mb2ic32ih12oc16oh12kh3ph1",
    "BWD_W f32 NXC mb4ic16ih14oc16oh14kh3ph1",
)
SEEDS = 5  # of the gate of KernelBench
Result = tuple[Array, Plant] | Array | None


def layers() -> list[Plant]:
    """Return a layer with groups, strides and dilations for each pass, and three plain layers."""
    uneven = [plant("weights", 2_000), plant("dst", 200), plant("src", 200)]
    return [*uneven, *(replace(plant_of(line, "normal"), by_engine=False) for line in LINES)]


def drawn(layer: Plant, kind: str, seed: int = 0) -> Plant:
    """Return a layer with operands of a kind."""
    rng = np.random.default_rng([seed, *kind.encode()])
    shapes = {name: getattr(layer, name).shape for name in "xyw"}
    if kind == "integers":  # those of benchdnn: sums are exact in f32
        largest = {"x": 32, "y": 8, "w": 32}
        arrays = {n: rng.integers(-largest[n], largest[n] + 1, shape).astype(float) for n, shape in shapes.items()}
        if layer.role == "weights":
            density = min(1.0, 2**24 / (32 * 32) / (np.prod(shapes["y"]) / shapes["y"][1]))
            arrays["y"] *= rng.random(shapes["y"]) < density
    else:
        make: dict[str, Callable[[tuple[int, ...]], Array]] = {
            "normal": rng.standard_normal,
            "uniform": rng.random,
            "ReLU": lambda shape: np.maximum(rng.standard_normal(shape), 0),
            "large": lambda shape: 1000 * rng.standard_normal(shape),
        }
        arrays = {n: make[kind](shape) for n, shape in shapes.items()}
    return replace(layer, **{n: a.astype(np.float32) for n, a in arrays.items()})


@dataclass
class Kernel:
    """A candidate, and its results, each computed once: got and exact as float64, and the problem asked for."""

    name: str
    compute: Callable[[Plant], Result]
    declared: dict[str, Any] = field(default_factory=dict)
    kept: dict[Any, tuple[Array, Array, Plant] | None] = field(default_factory=dict)
    said: str = "ok"  # outcome and names of convgrad's verdict

    @property
    def fmt(self) -> Any:
        return self.declared.get("result", F32)

    def results(self, kind: str, seed: int = 0) -> Iterator[tuple[Array, Array, Plant]]:
        """Yield the result, the rounded exact sums and the problem of each layer that the kernel supports."""
        for at, layer in enumerate(LAYERS):
            if (at, kind, seed) not in self.kept:
                self.kept[at, kind, seed] = self._of(drawn(layer, kind, seed))
            found = self.kept[at, kind, seed]
            if found is not None:
                yield found

    def _of(self, one: Plant) -> tuple[Array, Array, Plant] | None:
        with np.errstate(all="ignore"):
            try:
                planted = self.compute(one)
            except IndexError:  # the mutant changes a channel that the layer does not have
                planted = None
            if planted is None:
                return None
            got, asked = planted if isinstance(planted, tuple) else (planted, one)
            got = round_to(np.asarray(got, np.float64) + np.zeros(asked.sums().shape), self.fmt)
        return got, round_to(asked.sums(), self.fmt), asked


LAYERS = layers()


# -- the gates: each returns whether it rejects a kernel ---------------------------------------------------------------


def allclose(kernel: Kernel, tolerance: float, seeds: int = 1) -> bool:
    """Return whether a result is not close to the exact one, on normal operands."""
    pairs = (one for seed in range(seeds) for one in kernel.results("normal", seed))
    return not all(np.allclose(got, exact, rtol=tolerance, atol=tolerance) for got, exact, _ in pairs)


def robust(kernel: Kernel) -> bool:
    """Return whether an error exceeds 1e-3 of the largest value, on operands of four distributions."""
    pairs = (one for kind in ("normal", "uniform", "ReLU", "large") for one in kernel.results(kind))
    return not all(np.abs(got - exact).max() <= 1e-3 * np.abs(exact).max() for got, exact, _ in pairs)


def assert_close(kernel: Kernel) -> bool:
    """Return whether ``torch.testing.assert_close`` raises, with its defaults for the type of the result."""
    import torch  # noqa: PLC0415

    dtype = torch.bfloat16 if kernel.fmt is BF16 else torch.float32
    try:
        for got, exact, _ in kernel.results("normal"):
            torch.testing.assert_close(*(torch.from_numpy(a).to(dtype) for a in (got, exact)))
    except AssertionError:
        return True
    return False


def correlation(kernel: Kernel) -> bool:
    """Return whether Pearson's correlation with the exact result is below 0.99."""
    with np.errstate(all="ignore"):
        return not all(
            np.corrcoef(got.ravel(), exact.ravel())[0, 1] >= 0.99 for got, exact, _ in kernel.results("normal")
        )


def ulps(kernel: Kernel) -> bool:
    """Return whether an error exceeds 4 units in the last place of the exact value."""
    bits = kernel.fmt.significand_bits
    pairs = kernel.results("normal")
    return not all((np.abs(got - e) <= 4 * np.ldexp(1.0, np.frexp(e)[1] - bits)).all() for got, e, _ in pairs)


def benchdnn(kernel: Kernel) -> bool:
    """Return whether a result differs on integers whose sums are exact; Winograd may err by 2e-5, relative."""
    relative = 2e-5 if "winograd" in kernel.declared.get("algorithm", "") else 0.0
    for got, exact, _ in kernel.results("integers"):
        small = np.abs(exact) <= 1e-5
        error = np.abs(got - exact) / np.where(small, 1, np.abs(exact))
        equal = (got == exact) | (small & (np.abs(got - exact) < np.finfo(np.float32).eps))
        if not (equal | (error <= relative)).all():
            return True
    return False


def verify(kernel: Kernel) -> bool:
    """Return whether ``convgrad.verify.check`` calls a result wrong or degraded, as declared."""
    how = {name: value for name, value in kernel.declared.items() if name in ("accumulation", "algorithm")}
    for got, _, one in kernel.results("normal"):
        rounded = {n: round_to(getattr(one, n), TF32).astype(np.float32) for n in "xyw"}
        asked = replace(one, **rounded) if kernel.declared.get("operands") == "tf32" else one
        operator, inputs, attributes = asked.arguments()
        verdict = check(operator, got.astype(kernel.fmt.dtype), *inputs, **attributes, **asked.extra, **how)
        if verdict.outcome != "ok":
            kernel.said = "; ".join((verdict.outcome, *verdict.defects))
        if verdict.outcome in ("wrong", "degraded"):
            return True
    return False


def gradcheck(kernel: Kernel) -> bool:
    """Return whether ``torch.autograd.gradcheck`` fails with the kernel as the backward of a float64 function."""
    import torch  # noqa: PLC0415
    from torch.autograd.gradcheck import GradcheckError  # noqa: PLC0415
    from torch.nn.functional import conv2d, pad  # noqa: PLC0415

    for role in ("weights", "src"):
        rng = np.random.default_rng(3)
        x, y, w = (rng.standard_normal(s).astype(np.float32) for s in ((2, 4, 5, 6), (2, 4, 2, 5), (4, 2, 3, 3)))
        one = Plant(role, x, y, w)
        fixed = {n: torch.from_numpy(getattr(one, n)).double() for n in "xw"}

        class Layer(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, given: Any, name: str, fixed: Any) -> Any:
                both = {**fixed, name: given}
                return conv2d(pad(both["x"], (2, 1, 1, 0)), both["w"], stride=(2, 1), dilation=(1, 2), groups=2)

            @staticmethod
            def backward(ctx: Any, gradient: Any, one: Plant = one) -> Any:
                found = kernel.compute(replace(one, y=gradient.numpy().astype(np.float32)))
                if not isinstance(found, np.ndarray):
                    raise NotImplementedError
                return (
                    torch.from_numpy(np.ascontiguousarray(round_to(found.astype(np.float64), kernel.fmt))),
                    None,
                    None,
                )

        name = "w" if role == "weights" else "x"
        given = fixed[name].clone().requires_grad_()
        try:
            torch.autograd.gradcheck(Layer.apply, (given, name, fixed))
        except GradcheckError:
            return True
        except (NotImplementedError, ValueError, IndexError):
            continue  # no kernel for this problem
    return False


GATES: dict[str, Callable[[Kernel], bool]] = {
    "allclose 1e-2": partial(allclose, tolerance=1e-2),
    "allclose 1e-3": partial(allclose, tolerance=1e-3),
    "allclose 1e-5": partial(allclose, tolerance=1e-5),
    "KernelBench 1e-2": partial(allclose, tolerance=1e-2, seeds=SEEDS),
    "KernelBench 1e-4": partial(allclose, tolerance=1e-4, seeds=SEEDS),
    "robust 1e-3": robust,
    "assert_close": assert_close,
    "gradcheck": gradcheck,
    "PCC 0.99": correlation,
    "4 ulp": ulps,
    "benchdnn": benchdnn,
    "convgrad verify": verify,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("gates", "Compare gates by mutants caught and right kernels rejected.")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.csv", help="write a row per kernel")
    parser.add_argument("--only", nargs="*", metavar="NAME", help="these kernels")
    options = parser.parse_args(arguments)
    rows, started = [], time.monotonic()
    for sort, table in (("mutant", MUTANTS), ("right", KERNELS)):
        for name, (compute, declared) in table.items():
            if options.only and name not in options.only:
                continue
            kernel = Kernel(name, compute, dict(declared))
            row: dict[str, Any] = {"kernel": name, "sort": sort} | {
                gate: int(rejects(kernel)) for gate, rejects in GATES.items()
            }
            rows.append(row | {"verify says": kernel.said})
            print(", ".join(map(str, rows[-1].values())), flush=True)
    for gate in GATES:
        caught, rejected = (sum(row[gate] for row in rows if row["sort"] == sort) for sort in ("mutant", "right"))
        print(f"{gate}: {caught} mutants caught, {rejected} right kernels rejected")
    if options.output:
        with options.output.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    print(f"{len(rows)} kernels, {time.monotonic() - started:.0f} s", file=sys.stderr)
    return 0
