"""``convgrad explain``: print the ops and tensors of a graph, or how a problem line would be computed."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NoReturn

from convgrad import files, notation, scale
from convgrad.array_types import Dtype
from convgrad.cli.arguments import is_graph, limits_of, read_line
from convgrad.cli.console import complain, say
from convgrad.cli.exits import DONE, UsageError
from convgrad.cli.explain_json import of_call, of_graph
from convgrad.cli.sources import is_source, read_cases, use_cases
from convgrad.engines.settings import max_error
from convgrad.functional.explain import explain as explain_call
from convgrad.graph.dot import to_dot
from convgrad.graph.explain import explain
from convgrad.graph.given import by_id, formats_of
from convgrad.graph.reader import read
from convgrad.spec.winograd.choice import DIRECT
from convgrad.verify.cases.case import Case


@dataclass(frozen=True)
class UnreadArray:
    """A stand-in for an operand or a result in a file: it has a shape and a type, but no values."""

    shape: tuple[int, ...]
    dtype: Dtype

    def __getitem__(self, region: object) -> NoReturn:
        raise AssertionError("planning must not read operands")

    def __setitem__(self, region: object, array: object) -> None:
        raise AssertionError("planning must not write results")


def main(options: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    with max_error(options.max_error or DIRECT):
        return _explain(options)


def _explain(options: argparse.Namespace) -> int:
    if not is_graph(options.what):
        if is_source(options.what):
            return _explain_cases(options)
        _explain_line(options)
        return DONE
    if options.memory:
        raise UsageError("--memory goes with a problem line")
    limits = limits_of(options.limit)
    graph = read(options.what, limits)
    if options.tensors:
        read_in = by_id(
            graph.tensors.values(),
            files.read_all(options.tensors, limits.memory_bytes, formats_of(graph.tensors.values())),
        )
        graph = graph.with_given({t: array for t, array in read_in.items() if t not in graph.computed})
    say(json.dumps(of_graph(graph)) if options.json else to_dot(graph) if options.dot else explain(graph))
    return DONE


def _check_usage(options: argparse.Namespace) -> None:
    """Raise UsageError for options that only graphs have."""
    if options.json and options.memory:
        raise UsageError("--json describes a call that is not cut; it does not go with --memory")
    if options.tensors or options.dot:
        raise UsageError("--tensors and --dot go with GRAPH.json")


def _explain_line(options: argparse.Namespace) -> None:
    """Print how the calls of a problem line would be computed."""
    _check_usage(options)
    if options.limit:
        raise UsageError("--limit goes with files")
    if len(options.what.split()) == 1:
        wanted = "what to explain is GRAPH.json, a problem line in quotes, or cases as for convgrad verify"
        raise UsageError(f"{wanted}; got {options.what!r:.200}")
    for call in notation.calls(read_line(options.what)):
        typed = Case("", "", call.operator, call.shapes, call.attributes, call.format, call.format)
        _explain_call(typed, options)


def _explain_cases(options: argparse.Namespace) -> int:
    """Print how each case of a source would be computed, and return the exit code."""
    _check_usage(options)
    cases, unread = read_cases(options.what, limits_of(options.limit))

    def explain_one(case: Case) -> bool:
        about = {"case": case.name} | ({"why": case.why} if case.why else {})
        if case.unsupported:
            about |= {"skipped": case.unsupported}
            say(json.dumps(about) if options.json else f"{case.name} cannot be computed: {case.unsupported}")
            return True
        if case.note:
            complain(f"convgrad: warning: {case.note}")
        _explain_call(case, options, about)
        return True

    return use_cases(cases, unread, explain_one)[0]


def _explain_call(case: Case, options: argparse.Namespace, about: Mapping[str, str] = MappingProxyType({})) -> None:
    """Print how the call of a case would be computed, after the texts ``about`` the case."""
    types = {"operand_type": case.operand_format.name, "dtype": case.output_format.name}
    keywords: dict[str, Any] = {**types, "threads": options.threads, **case.attributes}
    explanation = explain_call(case.operator, *case.shapes, **keywords)
    head = "".join(f"{name}: {words}\n" for name, words in about.items())
    say(json.dumps({**about, **of_call(explanation)}) if options.json else f"{head}{explanation}")
    if options.memory:
        say(_in_pieces(case, options))


def _in_pieces(case: Case, options: argparse.Namespace) -> str:
    """Return a text that describes how a call on files would be cut into parts whose arrays fit in memory."""
    op, problem = case.posed()
    ports, fmt, to = zip(op.operands, case.shapes, strict=False), case.operand_format, case.output_format
    operands = [shape if port.is_shape else UnreadArray(shape, fmt.dtype) for port, shape in ports]
    out = UnreadArray(problem.output_shape, to.dtype)
    limits = {"memory": options.memory, "out": out, "threads": options.threads, "dtype": to.name}
    keywords: dict[str, Any] = {**limits, **case.attributes}
    plan = scale.plan(case.operator, *operands, **keywords)
    return f"in pieces, on files: {plan}"
