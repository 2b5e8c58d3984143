"""benchdnn's options (knobs): knobs of the problem with their values, knobs without effect, unsupported knobs."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from convgrad import notation
from convgrad.errors import NotationError
from convgrad.formats import FORMATS
from convgrad.verify.cases.tags import ANY, check_tag

Values = tuple[Any, ...]

UNDEF = "undef"
# Types of oneDNN that convgrad does not support.
FOREIGN_TYPES = ("s8", "u8", "s4", "u4", "s32", "e8m0", "f4_e2m1", "f4_e3m0", UNDEF)
# The older notation of types, configurations: those with floating-point types, each as src:wei:dst.
CONFIGURATIONS: Mapping[str, str] = {
    **{name: name for name in ("f32", "f64", "f16", "bf16")},
    "f32_wino": "f32",
    "f16_wino": "f16",
    "bf16bf16bf16": "bf16",
    "bf16bf16f32": "bf16:bf16:f32",
    "bf16f32bf16": "bf16:f32:bf16",
    "f32bf16bf16": "f32:bf16:bf16",
}
LARGEST_BATCH = 10**18


def _direction(text: str) -> str:
    if text.upper() not in notation.DIRECTIONS:
        directions, hint = ", ".join(notation.DIRECTIONS), notation.meant_direction(text)
        raise NotationError(f"dir must be one of {directions}; got {text!r:.80}{hint}")
    return text.upper()


def _types(text: str) -> tuple[str, str, str]:
    """Return the types of src, weights and dst; a single type applies to all three."""
    names = text.lower().split(":")
    if len(names) not in (1, 3):
        raise NotationError(f"dt must be one type, or three as src:wei:dst; got {text!r:.80}")
    src, weights, dst = [_type(name) for name in names * (3 // len(names))]
    return src, weights, dst


def _type(name: str) -> str:
    if name.lower() not in (*FORMATS, *FOREIGN_TYPES):
        raise NotationError(f"a type must be one of {', '.join((*FORMATS, *FOREIGN_TYPES))}; got {name!r:.80}")
    return name.lower()


def _configuration(name: str) -> tuple[str, str, str]:
    text = CONFIGURATIONS.get(name)
    if text is not None:
        return _types(text)
    if not name.startswith(("u8", "s8", "f32f32", "f16f16", "f8", "bf8", "hf8")):
        raise NotationError(f"cfg must be one of {', '.join(CONFIGURATIONS)}; got {name!r:.80}")
    return name, name, name


def _batch(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not int(text[:20]) <= LARGEST_BATCH:
        raise NotationError(f"mb must be a batch, or 0 for that of each descriptor; got {text!r:.80}")
    return int(text)


def _tag(text: str) -> str:
    if text not in (ANY, UNDEF):
        check_tag(text)
    return text


def _as_is(text: str) -> str:
    return text


# Knobs of the problem: the key of the knob's values, and the function that reads a value. Commas separate values.
PROBLEM: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "dir": ("dir", _direction),
    "dt": ("dt", _types),
    "cfg": ("dt", _configuration),
    "bia-dt": ("bia-dt", _type),
    "stag": ("stag", _tag),
    "wtag": ("wtag", _tag),
    "dtag": ("dtag", _tag),
    "strides": ("strides", _as_is),
    "mb": ("mb", _batch),
}
F32 = ("f32", "f32", "f32")
DEFAULTS: Mapping[str, Values] = {
    "dir": ("FWD_B",),
    "dt": (F32,),
    "bia-dt": (UNDEF,),
    "stag": (ANY,),
    "wtag": (ANY,),
    "dtag": (ANY,),
    "strides": ("",),
    "mb": (0,),
}

# Knobs that change how benchdnn runs, times and prints, or how the library computes, but not the problem.
HARMLESS = frozenset(
    (
        "alg", "allow-enum-tags-only", "canonical", "check-ref-impl", "cold-cache", "concise", "cpu-isa-hints",
        "ctx-exe", "ctx-init", "engine", "execution-mode", "fast-ref", "fast-ref-gpu", "fix-times-per-prb", "impl",
        "max-ms-per-prb", "mem-check", "memory-kind", "mode", "mode-modifier", "num-streams", "perf-template",
        "repeats-per-prb", "skip-impl", "stream-kind", "summary", "verbose",
        "attr-deterministic", "attr-same-pd-check", "attr-scratchpad",
    )
)  # fmt: skip
# Unsupported knobs, each with an alternative. They select problems or data in ways that only benchdnn knows.
REFUSED: Mapping[str, str] = {
    "start": "list the problems that are meant",
    "buffer-prefix": "give arrays by the naming scheme",
}
# Knobs for attributes of oneDNN's primitives, each with the values that leave the problem unchanged.
ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "attr-acc-mode": ("", "strict"),
    "attr-dropout": ("",),
    "attr-fpmath": ("", "strict"),
    "attr-oscale": ("",),
    "attr-post-ops": ("",),
    "attr-precomputed-reductions": ("",),
    "attr-rounding-mode": ("",),
    "attr-scales": ("",),
    "attr-zero-points": ("",),
}


# The syntax that has the same meaning in all builds of benchdnn: some use POSIX basic expressions, others ECMAScript's.
_SET = r"\[\^?(?:[^]\\[&~|-]|-(?!-))+\]"
_ITEM = re.compile(rf"({_SET}|\\[].*^$\\/[]|[^][\\*^$+?|(){{}}])(\*?)")
_EXPRESSION = re.compile(rf"(\^?)((?:{_ITEM.pattern})*)(\$?)")
LONGEST_EXPRESSION = 100


class Expression:
    """An expression of --match. The time of a search grows with the product of the two lengths, not faster.

    Each item matches one character or, with True, any number of them.
    """

    def __init__(self, items: Sequence[tuple[re.Pattern[str], bool]], at_start: bool, at_end: bool) -> None:
        self._items, self._at_start, self._at_end = items, at_start, at_end
        self._first = self._with_skipped({0})
        self._after = lru_cache(maxsize=1 << 12)(self._advanced)

    def search(self, text: str) -> bool:
        """Return whether the expression matches a part of a text."""
        every, reached = len(self._items), self._first
        for character in text:
            if every in reached and not self._at_end:
                return True
            reached = self._after(reached, character)
        return every in reached

    def _advanced(self, reached: frozenset[int], character: str) -> frozenset[int]:
        """Return the numbers of items that can be matched up to a character; ``reached`` are those before it."""
        after = set() if self._at_start else {0}
        for number in reached - {len(self._items)}:
            item, repeats = self._items[number]
            if item.match(character):
                after.add(number if repeats else number + 1)
        return self._with_skipped(after)

    def _with_skipped(self, reached: set[int]) -> frozenset[int]:
        """Return the numbers of matched items with those after items that may match no character."""
        for number, (_, repeats) in enumerate(self._items):
            if repeats and number in reached:
                reached.add(number + 1)
        return frozenset(reached)


def expression_of(text: str) -> Expression | None:
    """Return the expression of --match, which selects problems; None for an empty text, which selects all problems.

    >>> expression_of(".*kh3[^0-9]").search("ic4ih6oc6oh6kh3ph1"), expression_of("kh33*$").search("kh3ph1")
    (True, False)
    """
    wanted = "--match takes characters, ., sets as [0-9], each with or without a *, ^ and $"
    if len(text) > LONGEST_EXPRESSION:
        raise NotationError(f"{wanted}, at most {LONGEST_EXPRESSION} characters in all; got {len(text)}")
    match = _EXPRESSION.fullmatch(text)
    if match is None:
        raise NotationError(f"{wanted}: benchdnn's builds read the rest differently; got {text!r:.80}")
    try:
        items = tuple((re.compile(item[1]), bool(item[2])) for item in _ITEM.finditer(match[2]))
    except re.error as error:
        raise NotationError(f"{wanted}; {error} in {text!r:.80}") from error
    return Expression(items, bool(match[1]), bool(match[match.re.groups])) if text else None


def values_of(name: str, text: str) -> tuple[str, Values]:
    """Return the key and the different values of a knob of the problem, or raise NotationError for any other knob.

    >>> values_of("dt", "f32,bf16:bf16:f32")
    ('dt', (('f32', 'f32', 'f32'), ('bf16', 'bf16', 'f32')))
    """
    if name in REFUSED:
        raise NotationError(f"--{name} is not supported: {REFUSED[name]}")
    if name in ATTRIBUTES:
        return name, tuple(dict.fromkeys(text.split(",")))
    if name not in PROBLEM:
        known = (*PROBLEM, *ATTRIBUTES, *HARMLESS, "conv", "deconv", "batch", "match", "reset")
        near = difflib.get_close_matches(name[:80], known, n=1)
        hint = f". Did you mean --{near[0]}?" if near else ""
        raise NotationError(f"--{name:.80} is no knob of benchdnn's convolutions that is known here{hint}")
    key, meaning = PROBLEM[name]
    if not text:
        return key, DEFAULTS[key]
    return key, tuple(dict.fromkeys(meaning(value) for value in text.split(",")))  # repeated values give equal cases
