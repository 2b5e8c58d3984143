"""oneDNN graphs: build them from ops or read them from JSON; infer shapes, explain, run and write them."""

from convgrad.graph.dot import to_dot
from convgrad.graph.explain import explain
from convgrad.graph.graph import Graph, Header, Outcome
from convgrad.graph.limits import Limits
from convgrad.graph.model import LogicalTensor, Op, Verbatim
from convgrad.graph.partition import CompiledPartition, Execution, Partition
from convgrad.graph.reader import from_json, read
from convgrad.graph.writer import to_json, write

__all__ = [
    "CompiledPartition",
    "Execution",
    "Graph",
    "Header",
    "Limits",
    "LogicalTensor",
    "Op",
    "Outcome",
    "Partition",
    "Verbatim",
    "explain",
    "from_json",
    "read",
    "to_dot",
    "to_json",
    "write",
]
