"""Explanations of how a call would be computed: work, engine, plan, memory, error bound, and cuts of the batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from convgrad import engines, formats
from convgrad.engines import Choice
from convgrad.float_environment import in_default_environment
from convgrad.functional.call import check_options, problem_from_shapes
from convgrad.functional.partials import SUMMED, why_no_order
from convgrad.parameters import described
from convgrad.spec.activation import activated
from convgrad.spec.bound import gamma
from convgrad.spec.layouts import from_canonical, shape_words
from convgrad.spec.pieces import chunk_images, leaf_images
from convgrad.spec.problem import Problem, canonical_shape
from convgrad.spec.rules import refuse
from convgrad.spec.winograd.choice import kappa
from convgrad.spec.work import moved_bytes, needed_flops, nominal_flops
from convgrad.starting import deferred
from convgrad.words import counted, duration, shown

if TYPE_CHECKING:
    from convgrad.plan.recipe import Chosen

WIDTH = 10


@deferred
def _texts() -> tuple[Callable[[Problem], list[tuple[str, str]]], Callable[[Problem], str]]:
    """Return the functions that describe a problem and the norms in its bound, which few programs need."""
    from convgrad.functional.in_words import in_words, norms  # noqa: PLC0415

    return in_words, norms


@dataclass(frozen=True)
class Explanation:
    """The explanation of a call on dense row-major arrays: problem, engine and plan. Print the object to read the text.

    ``height`` is the rounding depth h, the largest number of roundings that affect one product. The error of a direct
    sum is at most gamma_h sum |x||y|, where gamma_h = h u / (1 - h u) and u is the unit roundoff of the sums. Rounding
    the result to a narrower type adds its own error. ``scratch_bytes`` is the scratch memory of all threads, or 0 for
    the NumPy engine. ``why_direct`` is the reason why a call with ``max_error`` above 1 does not use Winograd.
    """

    problem: Problem
    choice: Choice
    plan: Chosen | None
    height: int
    scratch_bytes: int
    why_direct: str = ""

    @property
    def leaf_images(self) -> int | None:
        """The number of images in a leaf of the tree over the batch; None if there is no such tree.

        There is no tree if nothing is summed over the batch, or if Winograd or NumPy computes the sum.
        """
        cut = self.problem.solves_for in SUMMED and not why_no_order(self.problem) and not self.problem.algorithm
        return leaf_images(self.problem.geometry) if cut else None

    @property
    def cuts(self) -> range:
        """The images, except image 0, at which a part of the batch may begin (see ``partials``)."""
        leaf = self.leaf_images
        return range(0) if leaf is None else range(leaf, self.problem.geometry.batch, leaf)

    @property
    def chunk_images(self) -> int | None:
        """The number of images per chunk, or None. f32 results summed chunk by chunk have the bits of one call."""
        return None if self.leaf_images is None else chunk_images(self.problem.geometry)

    @property
    @in_default_environment
    def error_factor(self) -> float:
        """The error bound of an element divided by sum |x||y|, or by the product of two norms for Winograd."""
        return kappa(self.problem) * float(gamma(self.height, self.problem.operand_format.accumulator.unit))

    def _error(self) -> str:
        """Return the error bound of an element as text."""
        output, sums = self.problem.output_format, self.problem.operand_format.accumulator
        rounded = f" before the result is rounded to {output}" if output.unit > sums.unit else ""
        if not self.problem.algorithm:
            return f"{self.error_factor:.3g} sum |x||y|{rounded}"
        (_, norms), constant, tiles = _texts(), kappa(self.problem), self.problem.algorithm
        return f"{self.error_factor:.3g} {norms(self.problem)}{rounded}: kappa = {constant:.4g}, of tiles of {tiles}"

    def __str__(self) -> str:
        problem = self.problem
        geometry, moved = problem.geometry, moved_bytes(problem)
        kinds = dict.fromkeys(map(str, (problem.operand_format, problem.output_format)))
        tensors = [(t, problem.layouts[n]) for n, t in enumerate((*problem.operands, problem.output)) if t != "bias"]
        shapes = [f"{t} {shape_words(from_canonical(canonical_shape(geometry, t), layout))}" for t, layout in tensors]
        nominal, needed = nominal_flops(geometry), needed_flops(geometry)
        described, _ = _texts()
        rows = [
            *described(problem),
            ("shapes", f"of the underlying convolution: {', '.join(shapes)}"),
            ("work", f"{nominal / 1e9:.4g} GFLOP, {needed / 1e9:.4g} without padding; {moved / 1e6:.4g} MB"),
            ("intensity", f"{nominal / max(moved, 1):.4g} operations per byte"),
            ("engine", str(self.choice)),
            ("time", _time(self.plan, nominal)),
            ("sums", f"height h = {self.height}; error at most {self._error()}"),
        ]
        if self.why_direct:
            rows.append(("Winograd", f"not used: {self.why_direct}"))
        if self.leaf_images is not None:
            leaf = "an image: cut anywhere" if self.leaf_images == 1 else f"{self.leaf_images} images: cut at multiples"
            chunk = f"accumulating f32 {counted(self.chunk_images or 0, 'image')} at a time gives the same bits"
            rows.append(("batch", f"a leaf is {leaf}; {chunk}"))
        if self.plan is not None:
            rows += [("plan", line) for line in str(self.plan).splitlines()[:1]]
            rows += [("", line) for line in str(self.plan).splitlines()[1:]]
            rows.append(("scratch", f"{self.scratch_bytes / 1024:.0f} KiB of {counted(self.plan.threads, 'thread')}"))
        return "\n".join([f"{problem.operator} {' to '.join(kinds)}", *(f"  {n:{WIDTH}}  {text}" for n, text in rows)])


def _time(plan: Chosen | None, flops: int) -> str:
    """Return the predicted time of a plan as text."""
    if plan is None:
        return "not predicted: the NumPy engine has no plan"
    speed = f": {flops / plan.time_ms / 1e6:.3g} GFLOP/s" if plan.time_ms else ""
    measured = f"; {duration(plan.measured_ms)} measured" if plan.measured_ms else ""
    threads = counted(plan.threads, "thread")
    return f"about {duration(plan.time_ms)} on {threads}, predicted by the cost model{speed}{measured}"


@described
def explain(
    operator: str,
    *shapes: object,
    operand_type: str = "f32",
    dtype: object = None,
    threads: int | None = None,
    max_error: float | None = None,
    activation: str | None = None,
    **attributes: object,
) -> Explanation:
    """Return an explanation of how :func:`run` would compute a call on dense arrays of these shapes.

    Print the result to read the explanation. An attribute may be one int for all axes, and you may omit strides and
    dilations of 1, as in :func:`infer_shapes`. Raises the errors of :func:`run`.

    Keyword Args:
        operand_type: The type of the operands: "f32", "bf16", "f16", "f64" or one of f8. Default: 'f32'.

    Follows oneDNN's documentation of the named operator.

    >>> layer = {"auto_pad": "same_upper", "weights_shape": [3, 3, 64, 64]}
    >>> explanation = explain("ConvolutionBackwardWeights", (8, 56, 56, 64), (8, 56, 56, 64), **layer)
    >>> explanation.height, explanation.leaf_images, explanation.chunk_images
    (244, 1, 1)
    """
    check_options(operator, None, False, threads)
    fmt = formats.named(operand_type)
    if fmt is None:  # T1
        names = ", ".join(formats.FORMATS)
        refuse(
            "T1",
            operator,
            f"operand_type must be one of {names}; got {shown(operand_type)}{formats.meant(operand_type)}",
        )
    _, problem = problem_from_shapes(operator, shapes, attributes, fmt, dtype, spell_out=True)
    direct = activated(problem, activation)
    problem = engines.within(direct, max_error)
    machine = engines.machine_of(problem)
    plan = None if machine is None else engines.plan_of(problem, machine, threads)
    scratch = 0 if plan is None else engines.scratch_of(problem, plan)
    why_direct = engines.why_direct(direct, max_error)
    return Explanation(problem, engines.choose(problem), plan, engines.height(problem), scratch, why_direct)
