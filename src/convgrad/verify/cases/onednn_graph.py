"""oneDNN Graph JSON as cases: each op that is in the operator table, with the shapes that the graph determines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from convgrad.disk import read_bytes
from convgrad.errors import FileError, GraphError
from convgrad.formats import F32
from convgrad.graph import reader
from convgrad.graph.infer import Inference
from convgrad.graph.limits import Limits
from convgrad.graph.model import RELU, Op, operator_of
from convgrad.verify.cases.case import Case, NoCaseError, PassedOverError, Reading
from convgrad.verify.cases.naming import counted_kinds

START_BYTES = 1 << 20  # bytes at the start of a file that are searched for the key "graph"
_KEY = re.compile(rb'"graph"\s*:')


def matches(path: Path) -> bool:
    """Return whether a file is a graph: JSON with the key "graph" near its start."""
    return path.suffix.lower() == ".json" and path.is_file() and bool(_KEY.search(read_bytes(path, START_BYTES)))


def read(path: Path, limits: Limits) -> Iterator[Reading]:
    """Yield a case for each op of the operator table, in running order, or raise FileError with a JSON path.

    An op gives an unsupported case if the graph alone does not determine its problem, or if its tensors are not
    supported. Other ops give a PassedOverError, and a graph without any op of the table a NoCaseError.
    """
    try:
        inference = reader.read(path, limits).inference
    except GraphError as error:
        raise FileError(str(error)) from error
    ops = [op for op in inference.order if operator_of(op) not in (None, RELU)]
    if not ops:
        kinds = ", ".join(dict.fromkeys(op.kind for op in inference.order))
        raise NoCaseError(f"{path}: must have an op of the convolution family; it has {kinds:.200}")
    for op in ops:
        yield _case(op, inference, path)
    others = [op.kind for op in inference.order if operator_of(op) in (None, RELU)]
    if others:
        yield PassedOverError(f"{path}: {counted_kinds(others)} cannot be judged")


def _case(op: Op, inference: Inference, path: Path) -> Case:
    name, place = f"{path.stem}_{op.name or f'{op.kind}_{op.id}'}", f"{path}:{op.where}"
    row, resolved = operator_of(op), inference.resolved.get(op.id)
    assert row is not None
    if resolved is None:
        unknown = f"extents, types or shape inputs of {op.label} are unknown: the graph alone does not settle them"
        why = inference.reasons.get(op.id) or unknown
        return Case(name, place, row.name, (), {}, F32, F32, unsupported=why)
    problem = resolved.problem
    shapes = tuple(
        problem.output_shape if port.is_shape else inference.tensors[tensor.id].shape or ()
        for port, tensor in zip(row.operands, op.inputs, strict=False)
    )
    return Case(name, place, row.name, shapes, resolved.attributes, problem.operand_format, problem.output_format)
