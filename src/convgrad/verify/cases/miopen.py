"""Lines of MIOpenDriver and iree-boo-driver as cases: one case for each direction that the line runs."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from convgrad.formats import BF16, F16, F32, Format
from convgrad.spec.geometry import effective_kernel, forward_extent, transposed_extent
from convgrad.verify.cases.case import Case
from convgrad.verify.cases.driver_flags import NUMBERS, OTHER, Flags, read_flags
from convgrad.verify.cases.lying import DATA, TRANSPOSED, WEIGHTS, lying
from convgrad.verify.cases.naming import safe
from convgrad.verify.cases.place import Place, Word
from convgrad.verify.cases.posed import unsupported

FORMATS: dict[str, Format] = {"conv": F32, "convfp16": F16, "convbfp16": BF16}
UNSERVED = ("convint8", "convfp8", "convbfp8")
DRIVERS = ("MIOpenDriver", "iree-boo-driver")
DIRECTIONS = {1: "fwd", 2: "bwd", 4: "wrw"}  # bits of --forw
AXES = {1: "h", 2: "hw", 3: "dhw"}

Shape = tuple[int, ...]


def begins(word: str) -> bool:
    """Return whether a line with this first word is one of MIOpen's log, or of a driver, with or without its name."""
    return word.rpartition("/")[2] in (*DRIVERS, *FORMATS, *UNSERVED) or word.startswith("MIOpen(")


def read_line(text: str, place: Place) -> list[Case]:
    """Return the cases of one line, whose first word is at ``place``, or raise an error with the place of a wrong word.

    >>> word = "convbfp16 -n 8 -c 16 -H 32 -W 32 -k 16 -y 3 -x 3 -p 1 -q 1 -g 2 -F 4 --in_layout NHWC --out_layout NHWC"
    >>> [(case.operator, case.shapes) for case in read_line(word, Place("x"))]
    [('ConvolutionBackwardWeights', ((8, 32, 32, 16), (8, 32, 32, 16), (16, 8, 3, 3)))]
    """
    words = (Word(match[0], replace(place, column=place.column + match.start())) for match in re.finditer(r"\S+", text))
    driver, command, flag_words = _command(tuple(words))
    boo = driver == "iree-boo-driver"
    if command.text in UNSERVED:
        return [
            unsupported(command.text, command.place, f"{command.text} computes in 8 bits, which no format here has")
        ]
    if command.text not in FORMATS:
        legal = ", ".join((*FORMATS, *UNSERVED))
        raise command.place.refuse(f"a driver's line must name a convolution, one of {legal}; got {command}")
    flags = read_flags(flag_words, place)
    if flags.others:
        name = flags.others[0]
        sentence = f"--{name} must be {OTHER[name][1] or 'absent'}: a case cannot express other values"
        return [unsupported(command.text, flags.at(name), sentence)]
    convolution = _convolution(flags, boo)
    return [_case(convolution, bit, command.text, flags) for bit in _bits(flags, driver)]


def _command(words: tuple[Word, ...]) -> tuple[str, Word, tuple[Word, ...]]:
    """Return the driver's name ("" if the line has none), the command, and the words after the command."""
    for at, word in enumerate(words):
        name = word.text.rpartition("/")[2]
        if name in DRIVERS:
            if at + 1 == len(words):
                raise word.place.refuse("a driver must be followed by its command, such as conv; the line ends")
            return name, words[at + 1], words[at + 2 :]
        if not word.text.startswith(("MIOpen(", "Command", "[")):  # a log has MIOpen(HIP): Command [LogCmdConvolution]
            break
    return "", words[0], words[1:]


def _bits(flags: Flags, driver: str) -> list[int]:
    """Return the bits of the directions to run. 0 means all directions and is MIOpenDriver's default.

    iree-boo-driver runs only one direction.
    """
    forw = flags.number("forw")
    if driver == "iree-boo-driver":
        forw = flags.numbers.get("forw", 1)
        if forw not in DIRECTIONS:
            raise flags.at("forw").refuse(f"iree-boo-driver runs one direction, --forw 1, 2 or 4; got {forw}")
    elif not driver and "forw" not in flags.numbers:
        sentence = "a line without a driver's name must have --forw: MIOpenDriver's default is all directions,"
        raise flags.line.refuse(f"{sentence} iree-boo-driver's is the forward; it was not given")
    if forw > sum(DIRECTIONS):
        raise flags.at("forw").refuse(f"--forw must be a sum of 1 (fwd), 2 (bwd) and 4 (wrw); got {forw}")
    return [bit for bit in DIRECTIONS if forw & bit or not forw]


@dataclass(frozen=True)
class _Convolution:
    """The properties that all directions of a line share. Shapes are canonical, with src and dst of the forward."""

    transposed: bool
    src: Shape
    weights: Shape
    dst: Shape
    attributes: dict[str, object]
    letters: dict[str, str]  # the order of each tensor's axes
    spelled: dict[str, str]


def _convolution(flags: Flags, boo: bool) -> _Convolution:
    layouts = {name: flags.word(name) for name in ("in_layout", "fil_layout", "out_layout")}
    axes = _axes(flags, layouts, boo)
    transposed = _transposed(flags, boo)
    g = flags.number("group_count")
    if not boo:
        g = max(g, 1)  # because MIOpenDriver does this
    if g == 0 or flags.number("in_channels") % g or flags.number("out_channels") % g:
        raise flags.at("group_count").refuse(f"group_count must divide in_channels and out_channels; got {g}")
    size, kernel = (tuple(flags.number(f"{what}_{a}") for a in axes) for what in ("in", "fil"))
    strides, dilations = (_positive(flags, axes, what) for what in ("conv_stride", "dilation"))
    is_dilated = any(d != 1 for d in dilations) and any(k != 1 for k in kernel)
    pads = _pads(flags, axes, None if transposed or is_dilated else _same_pads(size, kernel, strides))
    extra = tuple(flags.number(f"trans_output_pad_{a}") for a in axes)
    outer, inner = flags.number("out_channels"), flags.number("in_channels")
    effective = tuple(map(effective_kernel, kernel, dilations))
    if transposed:
        result_extents = tuple(
            transposed_extent(i, e, s, 2 * p, op)
            for i, e, s, p, op in zip(size, effective, strides, pads, extra, strict=True)
        )
    else:
        result_extents = tuple(
            forward_extent(i, e, s, 2 * p) for i, e, s, p in zip(size, effective, strides, pads, strict=True)
        )
    attributes: dict[str, object] = {
        "strides": list(strides),
        "pads_begin": list(pads),
        "pads_end": list(pads),
        "dilations": list(dilations),
        "groups": g,
    }
    if transposed and any(extra):
        attributes["output_padding"] = list(extra)
    default = "NC" + axes.upper()
    spelled = dict(zip(("src", "weights", "dst"), (layouts[name] or default for name in layouts), strict=True))
    n = flags.number("batchsize")
    # The filter's N is out_channels and its C is in_channels/g; if transposed, N is in_channels and C out_channels/g.
    # In both cases N and C are the outer and the inner channels of the underlying convolution.
    channels = (inner, outer // g) if transposed else (outer, inner // g)
    return _Convolution(
        transposed,
        (n, inner, *size),
        (*channels, *kernel),
        (n, outer, *result_extents),
        attributes,
        {
            name: layout.lower().translate({ord("n"): "o", ord("c"): "i"} if name == "weights" else {})
            for name, layout in spelled.items()
        },
        spelled,
    )


def _axes(flags: Flags, layouts: dict[str, str], boo: bool) -> str:
    """Return the letters of the spatial axes. Their number is --spatial_dim, or that of a layout in iree-boo-driver."""
    count = flags.number("spatial_dim")
    if boo:
        count = next((len(layout) - 2 for layout in layouts.values() if layout), count)
    if count not in AXES or (count == 1 and not boo):
        raise flags.at("spatial_dim").refuse(f"a driver's convolution must have 2 or 3 spatial axes; got {count}")
    for name, layout in layouts.items():
        letters = "NC" + AXES[count].upper()
        if layout and sorted(layout) != sorted(letters):
            raise flags.at(name).refuse(f"--{name} must have each letter of {letters} once; got {layout[:80]!r:.200}")
    return AXES[count]


def _transposed(flags: Flags, boo: bool) -> bool:
    mode = flags.word("mode")
    if mode not in ("conv", "trans"):
        raise flags.at("mode").refuse(f"--mode must be conv or trans; got {mode[:80]!r:.200}")
    if boo and mode == "trans":
        sentence = (
            "iree-boo-driver's mode trans has weights of (out_channels, in_channels/groups, ...), which no transposed"
        )
        raise flags.at("mode").refuse(f"{sentence} convolution takes; give the line to MIOpenDriver, or --mode conv")
    return mode == "trans"


def _positive(flags: Flags, axes: str, what: str) -> Shape:
    values = tuple(flags.number(f"{what}_{a}") for a in axes)
    for axis, value in zip(axes, values, strict=True):
        if value < 1:
            name = f"{what}_{axis}"
            raise flags.at(name).refuse(f"--{name} (-{NUMBERS[name][0]}) must be at least 1; got {value}")
    return values


def _same_pads(size: Shape, kernel: Shape, strides: Shape) -> Shape:
    """Return MIOpenDriver's pads for pad_mode same: half of the total padding of each axis, rounded down."""
    return tuple(max(k - (i % s or s), 0) // 2 for i, k, s in zip(size, kernel, strides, strict=True))


def _pads(flags: Flags, axes: str, same: Shape | None) -> Shape:
    """Return the pad of each axis. In the drivers, an axis has the same pad at its beginning and at its end.

    ``same`` are the pads for pad_mode same. It is None if the convolution is dilated or transposed, because
    MIOpenDriver then ignores pad_mode.
    """
    mode = flags.word("pad_mode")
    if mode not in ("same", "valid", "default"):
        raise flags.at("pad_mode").refuse(f"--pad_mode must be same, valid or default; got {mode[:80]!r:.200}")
    pads = tuple(flags.number(f"pad_{a}") for a in axes)
    if mode == "default" or same is None:
        return pads
    return (0,) * len(axes) if mode == "valid" else same


def _case(conv: _Convolution, bit: int, command: str, flags: Flags) -> Case:
    letters = {name: axes for name, axes in conv.letters.items() if name != "weights"}
    words = {"src": "src", "dst": "dst"}
    if bit != 1:
        words["dst"] = "diff_dst"
    if bit == 2:
        words["src"] = "diff_src"
    spelled = {words.get(name, name): text for name, text in conv.spelled.items()}
    data = lying({words[name]: axes for name, axes in letters.items()}, DATA, spelled)
    named = "diff_weights" if bit == 4 else "weights"
    weights = lying(
        {named: conv.letters["weights"]},
        TRANSPOSED if conv.transposed else WEIGHTS,
        {named: conv.spelled["weights"]},
    )
    src, dst, kernel = data.shape(conv.src), data.shape(conv.dst), weights.shape(conv.weights)
    shapes: dict[int, tuple[Shape, ...]] = {1: (src, kernel), 2: (dst, kernel), 4: (src, dst, kernel)}
    if bit == 1 and flags.number("bias"):
        shapes[1] = (src, kernel, (conv.dst[1],))
    if bit == 2 and not conv.transposed:
        shapes[2] = (dst, kernel, src)
    name = {1: "Convolution", 2: "ConvolutionBackwardData", 4: "ConvolutionBackwardWeights"}[bit]
    if conv.transposed:
        name = {1: "ConvTranspose", 2: "ConvTransposeBackwardData", 4: "ConvTransposeBackwardWeights"}[bit]
    attributes = conv.attributes | {"data_format": data.format, "weights_format": weights.format}
    fmt = FORMATS[command]
    return Case(
        safe(f"{command}_{DIRECTIONS[bit]}_{_numbers(flags, conv)}"),
        str(flags.line),
        name,
        shapes[bit],
        attributes,
        fmt,
        fmt,
        why="; ".join((*data.notes, *weights.notes)),
    )


def _numbers(flags: Flags, conv: _Convolution) -> str:
    """Return a short text for the case's name: the numbers that the line gives, and the layouts."""
    names = [(name, NUMBERS[name][0]) for name in NUMBERS if name in flags.numbers and name != "forw"]
    letters = "".join(f"{short}{flags.numbers[name]}" for name, short in names if short.isalpha())
    deep = "".join(f"_{name}{flags.numbers[name]}" for name, short in names if not short.isalpha())
    layouts = "_".join(dict.fromkeys(conv.spelled.values()))
    return "_".join(filter(None, ("trans" * conv.transposed, letters + deep, layouts)))
