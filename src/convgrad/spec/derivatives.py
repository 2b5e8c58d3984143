"""The derivative of every operator by each of its tensors: a problem of the family again, and so is that one's.

All operators are one sum of products ``src * weights * dst`` over what meets, less the tensor they solve for. So the
derivative by a tensor solves for it on the same geometry, with the cotangent v in the place of what was solved for.
"""

from __future__ import annotations

from dataclasses import dataclass

from convgrad.spec.geometry import Channels
from convgrad.spec.operators import Tensor, find
from convgrad.spec.problem import Problem, canonical_shape, posed

COTANGENT, ZEROS = "v", "zeros"  # where an operand comes from that the one derived has not got


@dataclass(frozen=True)
class Derivative:
    """What computes a derivative: a problem, or none where it is the cotangent itself.

    ``operands`` says of each of the problem's operands which it is: COTANGENT, ZEROS of its shape, or the operand of
    that number of the one derived.
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
        seen = Channels(batch, channels, tuple(extents))
        return Derivative(posed("bias", False, seen, {"dst": layouts[problem.output]}, fmt, fmt), (COTANGENT,))
    if problem.solves_for == "bias":
        layouts["src"] = layouts["dst"]
        return Derivative(posed("bias_add", False, problem.geometry, layouts, fmt, fmt), (ZEROS, COTANGENT))
    made = posed(tensor, find(problem.operator).transposed, problem.geometry, layouts, fmt, fmt)
    given: dict[Tensor, int | str] = {name: number for number, name in enumerate(problem.operands)}
    return Derivative(made, tuple((given | {problem.output: COTANGENT})[t] for t in made.operands))
