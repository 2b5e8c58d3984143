"""``convgrad run GRAPH.json``: run a graph on tensors that are read from a file or generated, and check each op."""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from convgrad import files
from convgrad.array_types import Array, Dtype
from convgrad.cached import cached_property
from convgrad.cli.arguments import limits_of
from convgrad.cli.checks import against, check_recorded, ours, theirs, verdicts_on
from convgrad.cli.console import LISTED, complain, say
from convgrad.cli.exits import UsageError
from convgrad.cli.progress import ProgressLine
from convgrad.cli.report import report
from convgrad.cli.times import time_words, times_of
from convgrad.engines.settings import max_error, threads
from convgrad.errors import FileError, GraphError
from convgrad.formats import of_dtype
from convgrad.functional.call import Prepared, bind, check_options
from convgrad.graph.given import by_id, formats_of
from convgrad.graph.graph import Graph
from convgrad.graph.limits import Limits
from convgrad.graph.model import RELU, Op, operator_of
from convgrad.graph.partition import Execution, memory_of
from convgrad.graph.reader import read
from convgrad.spec.activation import relu
from convgrad.spec.layouts import shape_words
from convgrad.spec.winograd.choice import DIRECT
from convgrad.verify.fill import Kind
from convgrad.verify.fill_graph import fill_graph
from convgrad.verify.verdict import Verdict
from convgrad.words import printable

FOREIGN = ("inputs", "attr", "shapes", "type", "dtype", "activation", "expect", "memory", "checkpoint")


def run_graph(options: argparse.Namespace) -> bool:
    """Run the command and return whether every op ran or had its results given, and every comparison passed."""
    foreign = [name for name in FOREIGN if getattr(options, name)]
    if foreign:
        raise UsageError(f"a graph has its own operators, attributes, shapes and types; {foreign[0]} cannot go with it")
    if options.seed is not None and options.tensors and not options.fill:
        raise UsageError("--seed goes with --fill")
    check_options("run", None, False, options.threads)
    limits = limits_of(options.limit)
    tensors = _tensors(read(options.operator, limits), options, limits)
    graph = tensors.graph
    if options.output:
        files.check_target_of_all(options.output, [_dtype(graph, t) for t in graph.computed], options.force)
    watch = _Watch(options, tensors)
    held = (*tensors.made_up.values(), *tensors.inputs.values(), *tensors.expected.values())
    remaining_bytes = limits.memory_bytes - sum(map(memory_of, held))
    limit = nullcontext() if options.threads is None else threads(options.threads)
    within = max_error(options.max_error or DIRECT)
    with ProgressLine(f"{options.operator}:", options.json), warnings.catch_warnings(action="ignore"), limit, within:
        inputs = {**tensors.inputs, **tensors.made_up}
        try:
            outcome = graph.run(
                inputs,
                observe=watch.ran,
                observe_skipped=watch.skipped,
                limits=replace(limits, memory_bytes=remaining_bytes),
            )
        except GraphError as error:
            if not (watch.skipped_ops == len(graph.ops) and (tensors.expected or options.check)):
                raise
            complain(f"convgrad: {error}; nothing was compared, which is no success")
            return False
    summary: dict[str, object] = {"ops": len(graph.ops), "ran": len(graph.ops) - len(outcome.skipped)}
    right = True
    if tensors.expected or options.check:
        right = watch.held and watch.compared > 0
        summary |= {"compared": watch.compared, "ok": right}
    left_out = {"not_run": watch.not_run, "made_up": watch.made_up}
    summary |= {name: ops for name, ops in left_out.items() if ops}
    if options.output:
        files.write_all(options.output, {str(t): array for t, array in outcome.results.items()}, options.force)
        summary["written"] = options.output
    say(json.dumps(summary) if options.json else _summary_text(summary))
    return right and not watch.not_run


@dataclass(frozen=True)
class _Tensors:
    """The arrays of a graph by tensor id: inputs, generated arrays, and expected results."""

    graph: Graph
    inputs: Mapping[int, Array]
    made_up: Mapping[int, Array]
    expected: Mapping[int, Array]


def _tensors(graph: Graph, options: argparse.Namespace, limits: Limits) -> _Tensors:
    read_in = (
        files.read_all(options.tensors, limits.memory_bytes, formats_of(graph.tensors.values()))
        if options.tensors
        else {}
    )
    arrays: dict[int, Any] = by_id(graph.tensors.values(), read_in)
    expected = {t: array for t, array in arrays.items() if t in graph.computed}
    inputs = {t: array for t, array in arrays.items() if t not in expected}
    if options.height is not None and not expected:
        raise UsageError("--height describes the sums of results in a file; no array of --tensors is a result")
    graph = graph.with_given(inputs, kept=expected) if arrays else graph
    for op in graph.inference.order:
        for tensor in (t.id for t in op.outputs if t.id in expected and op.id in graph.inference.resolved):
            problem = graph.inference.resolved[op.id].problem
            check_recorded(f"{options.tensors}:{tensor}", expected[tensor], problem)
    made_up: Mapping[int, Array] = {}
    if options.fill or not options.tensors:
        remaining_bytes = limits.memory_bytes - sum(map(memory_of, [*inputs.values(), *expected.values()]))
        made_up = fill_graph(graph, _kind(options), options.seed or 0, inputs, remaining_bytes)
    return _Tensors(graph, inputs, made_up, expected)


@dataclass
class _Watch:
    """The observer of a graph's run: it prints a report of each op, judges results, and counts the verdicts.

    ``held`` is whether no comparison has failed so far. ``not_run`` has the labels of ops that did not run and whose
    results were not given, and ``made_up`` the ids of the tensors that were generated instead of these results.
    """

    options: argparse.Namespace
    tensors: _Tensors
    held: bool = True
    compared: int = 0
    skipped_ops: int = 0
    not_run: list[str] = field(default_factory=list)
    made_up: list[int] = field(default_factory=list)

    @cached_property
    def relus(self) -> Mapping[int, int]:
        """The input tensor of each ReLU that runs, by its output tensor."""
        ops = (op for op in self.tensors.graph.ops if operator_of(op) is RELU)
        return {op.outputs[0].id: op.inputs[0].id for op in ops if op.outputs[0].id not in self.tensors.inputs}

    def ran(self, step: Execution) -> None:
        """Report an op that ran; judge convgrad's result if --check is given, and the result in --tensors, if any."""
        op, prepared, options = step.op, step.prepared, self.options
        claims = [ours(prepared, step.result)] if options.check else []
        output = op.outputs[0].id
        if output in self.tensors.expected:
            place, recorded = self._place(output), self.tensors.expected[output]
            shared = len(self.tensors.expected) > 1
            claims.append(theirs(place, self._as_recorded(op, prepared), recorded, options.height, shared))
        verdicts = verdicts_on(claims, silent=options.json)
        times = times_of(prepared.problem, step.compile_ms, step.time_ms)
        sources = {port.name: self._source(t.id) for port, t in zip(prepared.op.operands, op.inputs, strict=False)}
        if prepared.problem.note:
            complain(f"convgrad: warning: {op.label}: {prepared.problem.note}")
        summary = report(prepared, sources, step.result, times, verdicts)
        summary = {"op": op.label, "tensor": output, **summary}
        notes = [f"with {fused.label}, {printable(fused.kind)}" for fused in step.ops[1:]]
        summary |= {"fused": [fused.label for fused in step.ops[1:]]}
        say(json.dumps(summary) if options.json else _text(summary, notes + self._invented(op), verdicts))
        self.held = self.held and all(verdict.ok for verdict in verdicts.values())
        self.compared += len(verdicts)

    def skipped(self, op: Op, reason: str) -> None:
        """Report an op that did not run. If --tensors has a result to judge, the run fails: it cannot be judged."""
        self.skipped_ops += 1
        absent = [self._place(t.id) for t in op.outputs if t.id in self.tensors.expected]
        made_up = [t.id for t in op.outputs if t.id in self.tensors.made_up]
        self.held = self.held and not absent
        if not op.outputs or any(t.id not in self.tensors.inputs for t in op.outputs):
            self.not_run.append(op.label)
        self.made_up += made_up
        line: dict[str, object] = {"op": op.label, "skipped": reason}
        line |= ({"not_compared": absent} if absent else {}) | ({"made_up": made_up} if made_up else {})
        words = "".join(f"; {place} was not compared" for place in absent)
        words += "".join(f"; tensor {t} is made up: {_made_up_words(self.options)}" for t in made_up)
        say(json.dumps(line) if self.options.json else f"{op.label} did not run: {reason}{words}")

    def _place(self, tensor: int) -> str:
        return f"{self.options.tensors}:{tensor}"

    def _as_recorded(self, op: Op, prepared: Prepared) -> Prepared:
        """Return the call on operands from --tensors, if it has them: its results were computed from these operands."""
        taken = dict(prepared.taken)
        for port, tensor in zip(prepared.op.operands, op.inputs, strict=False):
            array, wanted = self._recorded(tensor.id), prepared.problem.operand_format
            if array is not None:
                if of_dtype(array.dtype) is not wanted:
                    place = self._place(tensor.id)
                    raise FileError(f"{place}: {op.label} reads it, as {port.name}, in {wanted}; got {array.dtype}")
                taken[port.name] = array
        same = all(taken[name] is array for name, array in prepared.taken.items())
        return prepared if same else bind(prepared.op, prepared.attributes, prepared.problem, taken)

    def _recorded(self, tensor: int) -> Array | None:
        """Return the expected array of a tensor; for a ReLU's output, also the ReLU of its expected input."""
        if tensor in self.tensors.expected or tensor not in self.relus:
            return self.tensors.expected.get(tensor)
        before = self._recorded(self.relus[tensor])
        return before if before is None else relu(before)

    def _source(self, tensor: int) -> str:
        is_made_up, is_input = tensor in self.tensors.made_up, tensor in self.tensors.inputs
        instead = "" if tensor in self.tensors.graph.inputs else "not computed but made up: "
        origin = f"{instead}{_made_up_words(self.options)}"
        where = origin if is_made_up else str(self.options.tensors) if is_input else "computed"
        return f"tensor {tensor}, {where}"

    def _invented(self, op: Op) -> list[str]:
        """Return a line for each generated input of ``op`` that another op should have computed."""
        made_up = [t for t in op.inputs if t.id in self.tensors.made_up and t.id not in self.tensors.graph.inputs]
        return [f"tensor {t.id} was not computed but made up: {_made_up_words(self.options)}" for t in made_up]


def _kind(options: argparse.Namespace) -> Kind:
    kind: Kind = options.fill or "integers"
    return kind


def _made_up_words(options: argparse.Namespace) -> str:
    return f"{_kind(options)}, seed {options.seed or 0}"


def _text(summary: Mapping[str, Any], notes: Sequence[str], verdicts: Mapping[str, Verdict]) -> str:
    """Return a line for the op, and a line for every note and verdict."""
    result = summary["result"]
    head = f"{summary['op']}  {summary['operator']} {summary['type']}"
    lines = [f"{head}  {result['name']} {shape_words(result['shape'])}  {time_words(summary)}"]
    lines += [f"  {note}" for note in notes]
    for source, verdict in verdicts.items():
        lines += [
            f"  {against(source)}  {verdict.brief}",
            *(f"    {line}" for line in verdict.details if not verdict.ok),
        ]
    return "\n".join(lines)


def _summary_text(summary: Mapping[str, Any]) -> str:
    failed = "; comparisons failed or could not be made, see above"
    judgement = {True: "; every comparison held", False: failed, None: ""}[summary.get("ok")]
    if summary.get("compared") == 0:
        judgement = "; nothing was compared, which is no success"
    written = f"; written to {summary['written']}" if "written" in summary else ""
    not_run = f"; not run: {_some(summary['not_run'])}" if "not_run" in summary else ""
    tensors = f"; made up: {_some([f'tensor {t}' for t in summary['made_up']])}" if "made_up" in summary else ""
    return f"{summary['ran']} of {summary['ops']} ops ran{judgement}{not_run}{tensors}{written}"


def _some(names: Sequence[str]) -> str:
    """Return the first names, and the number of the others."""
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"{', '.join(names[:LISTED])}{more}"


def _dtype(graph: Graph, tensor: int) -> Dtype:
    fmt = graph.tensors[tensor].format
    return np.dtype(np.float32) if fmt is None else fmt.dtype
