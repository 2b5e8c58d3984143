"""The derivative of every operator by each of its tensors. The derivative is again a problem of an operator.

Each operator solves for one of src, weights and dst: it sums products of the other two over the same pairs of positions
and taps. So the derivative by a tensor solves for this tensor on the same geometry. The cotangent v takes the place of
the tensor that the original problem solves for.
"""

from __future__ import annotations

from dataclasses import dataclass

from convgrad.spec.geometry import Channels
from convgrad.spec.operators import Tensor, find, solving_for
from convgrad.spec.problem import Problem, canonical_shape, posed

COTANGENT, ZEROS = "v", "zeros"  # operands of a derivative that are not operands of the original problem


@dataclass(frozen=True)
class Derivative:
    """A derivative: the problem that computes it, or None if the derivative is the cotangent itself.

    ``operands`` lists the operands of ``problem``. Each is COTANGENT, ZEROS (an array of zeros), or the number of an
    operand of the original problem.
    """

    problem: Problem | None
    operands: tuple[int | str, ...]


def derivative(problem: Problem, operand: int) -> Derivative:
    """Return the derivative of a problem by one of its operands, in that operand's layout and type.

    >>> from convgrad.notation import problem
    >>> one = derivative(problem("FWD_D f32 NXC mb1ic1iw3oc1ow3kw3pw1"), 1)
    >>> one.problem.operator, one.operands
    ('ConvolutionBackwardWeights', (0, 'v'))
    """
    tensor, fmt = problem.operands[operand], problem.operand_format
    layouts: dict[Tensor, str] = dict(zip((*problem.operands, problem.output), problem.layouts, strict=True))
    if problem.solves_for == "bias_add" and tensor == "src":
        return Derivative(None, (COTANGENT,))
    if tensor == "bias":
        batch, channels, *extents = canonical_shape(problem.geometry, problem.output)
        channels_of_dst = Channels(batch, channels, tuple(extents))
        row = solving_for("bias", False)
        return Derivative(posed(row, channels_of_dst, {"dst": layouts[problem.output]}, fmt, fmt), (COTANGENT,))
    if problem.solves_for == "bias":
        layouts["src"] = layouts["dst"]
        return Derivative(
            posed(solving_for("bias_add", False), problem.geometry, layouts, fmt, fmt), (ZEROS, COTANGENT)
        )
    row = solving_for(tensor, find(problem.operator).transposed)
    transposed = posed(row, problem.geometry, layouts, fmt, fmt)
    names: dict[Tensor, int | str] = {name: number for number, name in enumerate(problem.operands)}
    return Derivative(transposed, tuple((names | {problem.output: COTANGENT})[t] for t in transposed.operands))
