"""Drawings of trees as text; consecutive parts of the same kind share a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from convgrad.verify.probe.blocks import Chain, Part

MAX_LINES = 60


def draw(part: Part) -> str:
    """Return a drawing of a part of a tree as text, one line per chain or join.

    >>> from convgrad.verify.probe.blocks import StepwiseSum
    >>> print(draw(StepwiseSum(5, ((Chain(2, (0, 1)), Chain(2, (2, 3))), (Chain(1, (4,)),)))))
    join of 3, one after the other: 5 terms
    |-- 2 x chain of 2: 0 .. 3
    `-- 1 term: 4
    """
    lines = list(_lines(part, 1))
    if len(lines) > MAX_LINES:
        lines = [*lines[:MAX_LINES], f"... and {len(lines) - MAX_LINES} more lines"]
    return "\n".join(lines)


def _lines(part: Part, times: int, last: Part | None = None) -> Iterator[str]:
    """Yield the lines that draw ``times`` parts of the same kind; ``part`` is the first part, and ``last`` the last."""
    many = f"{times} x " if times > 1 else ""
    if isinstance(part, Chain):
        end = last if isinstance(last, Chain) else part
        what = f"chain of {part.size}" if part.size > 1 else f"term{'s' * (times > 1)}"
        yield f"{many or '1 ' * (part.size == 1)}{what}: {_terms(part, end, times)}"
        return
    whole = f"{part.size} terms{' each' * (times > 1)}"
    if part.one_by_one:
        yield f"{many}join of {len(part.parts)}, one after the other: {whole}"
        yield from _indented([_lines(group[0], len(group), group[-1]) for group in _alike(part.parts)])
    else:
        yield f"{many}join in {len(part.steps)} step{'s' * (len(part.steps) > 1)}: {whole}"
        alike = groupby(part.steps, key=lambda step: [(p.key, _stepped(p)) for p in step])
        yield from _indented([_step_lines(list(steps)) for _, steps in alike])


def _step_lines(steps: Sequence[tuple[Part, ...]]) -> Iterator[str]:
    """Yield the lines that draw steps of the same kind; only the first step is drawn."""
    many = f"{len(steps)} x " if len(steps) > 1 else ""
    if all(part.size == 1 for part in steps[0]):
        yield f"{many}{_count(len(steps[0]))}: {steps[0][0].first} .. {steps[-1][-1].first}"
        return
    yield f"{many}at once:"
    yield from _indented([_lines(group[0], len(group), group[-1]) for group in _alike(steps[0])])


def _count(terms: int) -> str:
    return f"{terms} terms at once" if terms > 1 else "1 term"


def _indented(blocks: Sequence[Iterator[str]]) -> Iterator[str]:
    for number, block in enumerate(blocks):
        ends = number == len(blocks) - 1
        for at, line in enumerate(block):
            lead = ("`-- " if ends else "|-- ") if at == 0 else ("    " if ends else "|   ")
            yield lead + line


def _alike(parts: Sequence[Part]) -> list[list[Part]]:
    return [list(group) for _, group in groupby(parts, key=lambda part: (part.key, _stepped(part)))]


def _stepped(part: Part) -> int:
    return part.step if isinstance(part, Chain) else 0


def _terms(first: Chain, last: Chain, times: int) -> str:
    """Return the terms of ``times`` chains of the same kind as text."""
    if first.size == 1:
        return str(first.first) if times == 1 else f"{first.first} .. {last.first}"
    begin, end = first.terms[0], last.terms[-1]
    if first.step in (1, -1):
        return f"{begin} .. {end}{', each backwards' * (first.step < 0 and times > 1)}"
    if first.step:
        every = f"{begin}, {first.terms[1]} .. {first.terms[-1]}"
        return f"{every}{f' to {last.terms[0]}, {last.terms[1]} .. {end}' if times > 1 else ''}"
    ranges = f"{min(first.terms)} .. {max(last.terms)}"
    return f"{', '.join(map(str, first.terms[:4]))} ... within {ranges}"
