"""The flags of MIOpenDriver's and iree-boo-driver's convolutions: long and short names, defaults and legal values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from convgrad.verify.cases.place import Place, Word

# Flags of both drivers that describe the convolution: the long name, the short name, the default.
NUMBERS: Mapping[str, tuple[str, int]] = {
    "spatial_dim": ("_", 2),
    "batchsize": ("n", 100),
    "in_channels": ("c", 3),
    "in_d": ("!", 32),
    "in_h": ("H", 32),
    "in_w": ("W", 32),
    "out_channels": ("k", 32),
    "fil_d": ("@", 3),
    "fil_h": ("y", 3),
    "fil_w": ("x", 3),
    "conv_stride_d": ("#", 1),
    "conv_stride_h": ("u", 1),
    "conv_stride_w": ("v", 1),
    "pad_d": ("$", 0),
    "pad_h": ("p", 0),
    "pad_w": ("q", 0),
    "trans_output_pad_d": ("%", 0),
    "trans_output_pad_h": ("Y", 0),
    "trans_output_pad_w": ("X", 0),
    "dilation_d": ("^", 1),
    "dilation_h": ("l", 1),
    "dilation_w": ("j", 1),
    "group_count": ("g", 1),
    "bias": ("b", 0),
    "forw": ("F", 0),
}
WORDS: Mapping[str, tuple[str, str]] = {
    "in_layout": ("I", ""),
    "out_layout": ("O", ""),
    "fil_layout": ("f", ""),
    "mode": ("m", "conv"),
    "pad_mode": ("z", "default"),
}
# Flags that control how the driver runs, times and prints; they do not change the result.
RUNNING: Mapping[str, str] = {
    "iter": "i",
    "verify": "V",
    "verification_cache": "C",
    "time": "t",
    "wall": "w",
    "search": "s",
    "printconv": "P",
    "dump_output": "o",
    "solution": "S",
    "gpualloc": "G",
}
# Flags that a case cannot express: their short names, and the only value that is accepted.
OTHER: Mapping[str, tuple[str, str]] = {
    "pad_val": ("r", "0"),
    "tensor_vect": ("Z", "0"),
    "vector_length": ("L", "1"),
    "in_data": ("d", ""),
    "weights": ("e", ""),
    "in_bias": ("a", ""),
    "dout_data": ("D", ""),
    "in_cast_type": ("U", "-1"),
    "out_cast_type": ("T", "-1"),
    "wei_cast_type": ("R", "-1"),
}
# Flags of iree-boo-driver alone; the switches take no value.
BOO = ("csv", "gpu-id", "reference-backend", "splat-input-value")
BOO_SWITCHES = ("verbose", "no-verbose")

_LONG: Mapping[str, str] = {
    **{short: name for table in (NUMBERS, WORDS, OTHER) for name, (short, _) in table.items()},
    **{short: name for name, short in RUNNING.items()},
}
_NAMES = frozenset(_LONG.values())
LARGEST = 2**31 - 1  # the drivers read numbers as 32-bit integers


@dataclass
class Flags:
    """The values of a line's flags, by the long name of the flag, and the places of the flags."""

    line: Place
    numbers: dict[str, int] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)

    def number(self, name: str) -> int:
        """Return the value of a flag of NUMBERS, or the default if the flag is absent."""
        return self.numbers.get(name, NUMBERS[name][1])

    def word(self, name: str) -> str:
        """Return the value of a flag of WORDS, or the default if the flag is absent."""
        return self.words.get(name, WORDS[name][1])

    def at(self, name: str) -> Place:
        """Return the place of a flag, or the line's place if the flag is absent."""
        return self.places.get(name, self.line)


def read_flags(words: tuple[Word, ...], line: Place) -> Flags:
    """Return the flags of a line, which have the form ``--name value``, ``--name=value`` or ``-n value``.

    If a flag is repeated, its last value is used. An unknown flag or an illegal value raises an error with its place.
    """
    flags = Flags(line)
    for name, place, value, where in _pairs(words):
        flags.places[name] = place
        if name in NUMBERS:
            flags.numbers[name] = _number(name, value, where)
        elif name in WORDS:
            flags.words[name] = value
        elif name in OTHER and value != OTHER[name][1]:
            flags.others.append(name)
    return flags


def _pairs(words: tuple[Word, ...]) -> Iterator[tuple[str, Place, str, Place]]:
    """Yield each flag's long name, its place, its value and the value's place."""
    words_left = iter(words)
    for word in words_left:
        text = _unquoted(word.text)
        name, equals, value = text.removeprefix("--").partition("=")
        if not text.startswith("--"):
            name, equals = _LONG.get(text[1:], "") if text.startswith("-") else "", ""
        if name in BOO_SWITCHES:
            continue
        if name not in _NAMES and name not in BOO:
            raise word.place.refuse(
                f"a flag must be one of a driver's convolution, such as -n 8 or --in_h 56; got {word}"
            )
        if equals:
            yield name, word.place, value, word.place
            continue
        following = next(words_left, None)
        if following is None:
            raise word.place.refuse(f"{word} must be followed by its value; the line ends")
        yield name, word.place, _unquoted(following.text), following.place


def _unquoted(text: str) -> str:
    """Return a word without quotes, which a shell would remove. In a shell, names such as -# and -! must be quoted."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _number(name: str, value: str, place: Place) -> int:
    if not (value.isascii() and value.isdecimal()) or len(value) > len(str(LARGEST)) or int(value) > LARGEST:
        raise place.refuse(f"{name} must be an integer from 0 to {LARGEST}; got {value[:80]!r:.200}")
    return int(value)
