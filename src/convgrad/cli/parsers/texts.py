"""Functions that convert the text of an argument: each returns a value or raises ArgumentTypeError."""

from __future__ import annotations

from argparse import ArgumentTypeError

LONGEST_S = 1e6
MAX_ERROR = (
    "allow errors up to TIMES times the error bound of the direct algorithm (default 1); with 8 or more, 3x3 layers"
    " may use Winograd"
)
TUNE = "choose plans by measurement, and keep the times in the kernel cache; this changes no bits"
HEIGHT = "the rounding depth of sums, or the blocks of their order as B1,B2,... (default: any order)"
PROBLEM_LINE = (
    "a problem line in quotes: [deconv] DIRECTION TYPE DATA_FORMAT[:WEIGHTS_FORMAT] and a descriptor of benchdnn"
)
FUNCTION = "a function that is called like convgrad.run: function(operator, *arrays, **attributes)"
ISOLATE = "call the function in a child process, so that a crash becomes a verdict (default for C libraries)"
TIMEOUT = "with --isolate: the longest time for one call"


def seed(text: str) -> int:
    """Return a seed, a non-negative integer."""
    if not text.isdecimal():
        raise ArgumentTypeError(f"a seed is a non-negative integer; got {text!r:.200}")
    return int(text)


def height_or_blocks(text: str) -> int | list[int]:
    """Return a rounding depth, or the blocks of a summation order as a list, such as [240, 240, 96]."""
    numbers = text.split(",")
    if not all(number.isdecimal() for number in numbers) or (len(numbers) > 1 and not all(map(int, numbers))):
        wanted = "a height is a non-negative integer, or the blocks of an order, such as 240,240,96"
        raise ArgumentTypeError(f"{wanted}; got {text!r:.200}")
    return int(text) if len(numbers) == 1 else [int(number) for number in numbers]


def index(text: str) -> tuple[int, ...]:
    """Return the index of an element from a text such as 0,2,1 or (0, 2, 1)."""
    numbers = text.strip("()[] ").rstrip(",").split(",")
    if not all(number.strip().isdecimal() for number in numbers):
        raise ArgumentTypeError(f"an index is non-negative integers, as 0,2,1; got {text!r:.200}")
    return tuple(map(int, numbers))


def seconds(text: str) -> float:
    """Return a time in seconds."""
    try:
        time_s = float(text)
    except ValueError:
        time_s = 0.0
    if not 0 < time_s < LONGEST_S:
        raise ArgumentTypeError(f"a positive number of seconds is wanted; got {text!r:.200}")
    return time_s


def positive(text: str) -> int:
    """Return a positive integer."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"a positive integer is wanted; got {text!r:.200}")
    return int(text)


def sample(text: str) -> int | str:
    """Return a positive number of elements, or "all"."""
    return text if text == "all" else positive(text)


def threads(text: str) -> int:
    """Return an integer, which may be negative; the computation refuses a wrong number of threads later."""
    if not text.removeprefix("-").isdecimal():
        raise ArgumentTypeError(f"a positive integer is wanted; got {text!r:.200}")
    return int(text)


def times(text: str) -> float:
    """Return a factor: a number of at least 1."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not number >= 1:
        raise ArgumentTypeError(f"a number is wanted, 1 at least; got {text!r:.200}")
    return number


def positives(text: str) -> list[int]:
    """Return the positive integers of a text such as 1,2,4."""
    return [positive(word) for word in words(text)]


def words(text: str) -> list[str]:
    """Return the parts of a text that are separated by commas, without spaces around them."""
    return [word.strip() for word in text.split(",") if word.strip()]
