"""Helpers for texts: values of callers, printable characters, counts, durations, suggestions for misspelled names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from reprlib import Repr

LONGEST = 80
SHOWN = 200  # characters of a caller's value in a message

_short = Repr()
_short.maxlist = _short.maxtuple = _short.maxset = _short.maxdict = _short.maxarray = _short.maxdeque = SHOWN
_short.maxfrozenset = SHOWN
_short.maxstring = _short.maxlong = _short.maxother = 4 * SHOWN


def shown(value: object) -> str:
    """Return the ``repr`` of a caller's value on one line, shortened without reading all of a long value.

    >>> shown([1, 2]), len(shown([0] * 10**6)), shown(10**5000)
    ('[1, 2]', 200, 'an integer of 16610 bits')
    """
    try:
        if isinstance(value, int) and value.bit_length() > 4 * SHOWN:  # Python may refuse to convert such an integer
            return f"an integer of {value.bit_length()} bits"
        text = _short.repr(value)
    except Exception:  # a caller's class may raise anything
        text = f"a value of {type(value).__name__}"
    return " ".join(text[: 4 * SHOWN].split())[:SHOWN]


def described(error: BaseException) -> str:
    """Return the type of an error of foreign code, and its message unless it is empty or cannot be read.

    >>> described(ValueError("no kernel")), described(ValueError())
    ('ValueError: no kernel', 'ValueError')
    """
    name = type(error).__name__
    try:
        return f"{name}: {error}".removesuffix(": ")
    except Exception:  # a message of a class of its own may raise anything
        return name


def printable(text: str, length: int | None = LONGEST) -> str:
    r"""Return the first ``length`` characters of a text, with each unprintable one replaced by a question mark.

    >>> printable("\x1b[2Jsrc")
    '?[2Jsrc'
    """
    start = text[:length]
    return start if start.isprintable() else "".join(c if c.isprintable() else "?" for c in start)


def counted(number: int, singular: str) -> str:
    """Return a number with its noun, in the plural unless the number is 1.

    >>> counted(1, "thread"), counted(2, "thread")
    ('1 thread', '2 threads')
    """
    return f"{number} {singular}{'s' * (number != 1)}"


def duration(milliseconds: float) -> str:
    """Return a duration as text, with three digits and the unit s, ms or us.

    >>> duration(0.0213), duration(12.34), duration(1490)
    ('21.3 us', '12.3 ms', '1.49 s')
    """
    factor, unit = (1e-3, "s") if milliseconds >= 999.5 else (1.0, "ms") if milliseconds >= 0.1 else (1e3, "us")
    return f"{milliseconds * factor:.3g} {unit}"


def meant(word: str, names: Iterable[str], minimum: float = 0.6) -> str:
    """Return a hint that suggests the name most similar to an unknown word; "" if no name is similar.

    >>> meant("fp32", ("f32", "bf16")), meant("bwd_w", ("FWD_D", "BWD_W")), meant("int8", ("f32", "bf16"))
    ('. Did you mean f32?', '. Did you mean BWD_W?', '')
    """
    by_letters = {name.lower(): name for name in names}
    near = difflib.get_close_matches(word[:LONGEST].lower(), by_letters, n=1, cutoff=minimum)
    return f". Did you mean {by_letters[near[0]]}?" if near else ""
