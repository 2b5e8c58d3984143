"""``convgrad run GRAPH.json``: a whole graph on tensors from a file or made-up ones, op by op checked."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convgrad import files
from convgrad.cli.arguments import UsageError, limits_of
from convgrad.cli.checks import check_recorded, verdicts_on
from convgrad.cli.progress import Progress
from convgrad.cli.report import report, shape_words
from convgrad.errors import FileError
from convgrad.functional.call import check_options
from convgrad.graph.given import by_id
from convgrad.graph.graph import Graph
from convgrad.graph.infer import producers_of
from convgrad.graph.partition import Execution
from convgrad.graph.reader import read
from convgrad.verify.compare import Verdict
from convgrad.verify.fill import Kind
from convgrad.verify.fill_graph import fill_graph

Array = NDArray[Any]

FOREIGN = ("inputs", "attr", "shapes", "type", "dtype", "expect")


def run_graph(options: argparse.Namespace) -> bool:
    """Run the command and return whether something ran, and every comparison held."""
    foreign = [name for name in FOREIGN if getattr(options, name)]
    if foreign:
        raise UsageError(f"a graph says operators, attributes, shapes and types itself; {foreign[0]} cannot go with it")
    if options.seed is not None and options.tensors and not options.fill:
        raise UsageError("--seed goes with --fill")
    check_options("run", None, False, options.threads)
    limits = limits_of(options.limit)
    graph = read(options.operator, limits)
    read_in = files.read_all(options.tensors) if options.tensors else {}
    graph = graph.with_given(read_in)
    if options.output:
        files.check_target_of_all(options.output, [_dtype(graph, tensor) for tensor in graph.outputs], options.force)
    watch = _Watch(options, *_tensors(graph, read_in, options))
    with Progress(f"{options.operator}:", options.json), warnings.catch_warnings(action="ignore"):
        outcome = graph.run(watch.given, observe=watch, limits=limits)
    for op in graph.inference.order:
        if op.id in outcome.skipped:
            skipped = {"op": op.label, "skipped": outcome.skipped[op.id]}
            print(json.dumps(skipped) if options.json else f"{op.label} did not run: {outcome.skipped[op.id]}")
    if not options.json:
        print(f"{len(watch.made)} of {len(graph.ops)} ops ran{watch.judgement}")
    if options.output:
        files.write_all(options.output, {str(t): array for t, array in outcome.results.items()}, options.force)
    absent = set(watch.expected) - watch.made
    if absent:
        raise FileError(f"{options.tensors}: tensor {min(absent)} is expected, but its op did not run")
    return watch.held and bool(watch.made)


@dataclass
class _Watch:
    """Reports every op that ran and compares its result; keeps count."""

    options: argparse.Namespace
    given: Mapping[int, object]
    expected: Mapping[int, Array]
    sources: Mapping[int, str]
    held: bool = True
    made: set[int] = field(default_factory=set)

    @property
    def judgement(self) -> str:
        """What all comparisons came to, in words."""
        if not self.expected and self.options.check is None:
            return ""
        return "; every comparison held" if self.held else "; comparisons failed, see above"

    def __call__(self, execution: Execution) -> None:
        op, prepared, options = execution.op, execution.prepared, self.options
        output = op.outputs[0].id
        recorded = {f"{options.tensors}:{output}": self.expected[output]} if output in self.expected else {}
        for place, array in recorded.items():
            check_recorded(place, array, prepared.problem)
        checked = options.check is not None
        verdicts = verdicts_on(prepared, execution.result, recorded, oracle_too=checked, silent=options.json)
        ports = zip((port.name for port in prepared.op.operands), op.inputs, strict=False)
        sources = {name: f"tensor {t.id}, {self.sources.get(t.id, 'computed')}" for name, t in ports}
        summary = report(prepared, sources, execution.result, execution.time_ms, verdicts)
        if prepared.problem.note:
            print(f"convgrad: warning: {op.label}: {prepared.problem.note}", file=sys.stderr)
        summary = {"op": op.label, "tensor": output, **summary}
        print(json.dumps(summary) if options.json else _text(summary, verdicts))
        self.held = self.held and all(verdict.ok for verdict in verdicts.values())
        self.made.add(output)


def _tensors(
    graph: Graph, read_in: Mapping[str, Array], options: argparse.Namespace
) -> tuple[Mapping[int, object], Mapping[int, Array], Mapping[int, str]]:
    """Return by id what the ops are given, what they are expected to make, and where the given came from."""
    arrays: dict[int, Any] = by_id(graph.tensors.values(), read_in)
    producers, outside = producers_of(graph.ops), graph.inference.reasons
    expected = {t: array for t, array in arrays.items() if t in producers and producers[t].id not in outside}
    given = {t: array for t, array in arrays.items() if t not in expected}
    sources = dict.fromkeys(given, str(options.tensors))
    made: dict[int, Array] = {}
    if options.fill or not options.tensors:
        kind: Kind = options.fill or "integers"
        seed = options.seed or 0
        made = fill_graph(graph, kind, seed, given, limits_of(options.limit).memory_bytes)
        sources |= dict.fromkeys(made, f"{kind}, seed {seed}")
    return {**given, **made}, expected, sources


def _text(summary: Mapping[str, Any], verdicts: Mapping[str, Verdict]) -> str:
    """Return what ran as a line, and a line for every comparison."""
    result = summary["result"]
    head = f"{summary['op']}  {summary['operator']} {summary['type']}"
    lines = [f"{head}  {result['name']} {shape_words(result['shape'])}  {summary['time_ms']:.3g} ms"]
    lines += [f"  against {name}  {v.brief if v.ok else v}" for name, v in verdicts.items()]
    return "\n".join(lines)


def _dtype(graph: Graph, tensor: int) -> np.dtype[Any]:
    fmt = graph.tensors[tensor].format
    return np.dtype(np.float32) if fmt is None else fmt.dtype
