"""Problems of every kernel, each with the property of the plans that it is about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Any

import numpy as np

from convgrad.functional.call import prepare
from convgrad.notation import problem as problem_of
from convgrad.plan.gemm.spec import POSITIONS_GEMM, TRANSPOSED, GemmPlan
from convgrad.plan.kn2row.spec import KN2ROW
from convgrad.plan.machine import ISAS
from convgrad.plan.recipe import SPATIAL
from convgrad.plan.split_k.recipe import SplitKPlan
from convgrad.plan.stencils.grouped import GROUPED_STENCIL
from convgrad.plan.stencils.spatial import SPATIAL_STENCIL
from convgrad.spec.geometry import Axis, Channels, Conv
from convgrad.spec.problem import Problem
from tests.support.classes import CLASSES, draw
from tests.support.engine_helpers import HOST
from tests.support.forward_problems import MIXED, PROBLEMS, ROLES, along, posed

SPLIT_K = [
    "BWD_W f32 NXC mb3ic15ih20oc17oh20kh3ph1",  # larger images: blocks of 12 rows; around one vector
    "BWD_W f32 NCX mb40ic31ih5oc33oh5kh3ph1",  # packed: 10 images a block
    "BWD_W bf16 NXC mb1ic16iw700oc3ow700kw2pw0",  # rows cut every 256
    "BWD_W f16 NCX mb1ic1iw5000oc5ow5000kw1pw0",  # 20 blocks: two levels of the tree
    "BWD_W f32 NXC mb19ic3ih17oc2oh17kh1ph0",  # 19 units: two levels above
    "BWD_W f32 NXC mb2ic32ih9oc64oh9kh1ph0",  # pointwise, full vectors
    "BWD_W f32 NXC mb2ic14ih9oc13oh5kh1sh2ph0",  # one tap, strided
    "BWD_W f32 NCX mb2ic20ih40oc37oh20kh1sh2ph0",  # positions 2 apart, transposed
    "BWD_W bf16 NCX mb2ic18ih49oc35oh17kh1sh3ph0",  # positions 3 apart
    "BWD_W f32 NXC g3mb2ic42ih6oc39oh6kh3ph1",
    "BWD_W f32 NXC mb2ic65ih4oc29oh9kh3ph9dh4",  # taps that see padding only
    "BWD_W f32 NXC mb300ic2iw1oc2ow1kw1pw0",
    "BWD_W f32 NXC mb2ic3ih5oc4oh7kh1ph1",  # one tap, which reads padding
    "BWD_W f32 NXC mb2ic2iw9oc3ow9kw3pw0",  # taps that would be channels if the last one read no padding
    "BWD_W f32 NXC mb8ic20ih13oc33oh13kh3ph1",
    "BWD_W f32 NCX mb40ic5ih5oc40oh5kh3ph1",
    "BWD_W bf16 NXC mb7ic3ih20oc40oh10kh5sh2ph2",
    "BWD_W f16 NCX g4mb3ic16ih9oc24oh9kh3ph1",
    "BWD_W f32 NXC mb300ic2iw1oc18ow1kw1pw0",  # two levels of units
    "BWD_W f32 NCX mb2ic2ih40iw3oc3oh21ow3kh20kw1",  # large kernels
    "BWD_W f32 NCX mb2ic1id9ih9iw3oc2od5oh5ow2kd5kh5kw2",
    "BWD_W f32 NCX mb2ic2ih9oc3oh9kh9ph4",
]
SPLIT_K += [  # cut for threads; long sums
    "BWD_W f32 NXC mb5ic67ih13oc70oh13kh3ph1",  # packed images
    "BWD_W f32 NXC mb2ic64ih24oc64oh24kh3ph1",
    "BWD_W f32 NXC mb2ic48ih30oc130oh30kh1ph0",
    "BWD_W f32 NXC mb3ic3ih40oc64oh20kh7sh2ph3",
    "BWD_W f32 NXC g4mb2ic32ih20oc64oh10kh3sh2ph1",
    "BWD_W f32 NXC mb1ic2iw400oc3kw300pw150",
    "BWD_W f32 NXC mb1ic1iw30000oc4kw4096sw7pw0",
    "BWD_W f32 NXC mb1ic1iw100000oc1kw1pw0",
    "BWD_W f32 NXC mb100000ic1iw1oc1kw1pw0",
    "BWD_W f32 NXC mb10ic1ih100oc1kh1ph0",
    "BWD_W f32 NXC mb1000ic1iw1000oc1kw1pw0",
]
SIZES = [1, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 47, 49, 63, 65]  # around the lanes
OTHERS = np.random.default_rng(3).permutation(SIZES).tolist()
SPLIT_K += [
    f"BWD_W f32 {layout} mb2ic{n}iw{other}oc{other}ow{other}kw3pw1"
    for layout in ("NXC", "NCX") for n, other in zip(SIZES, OTHERS, strict=True)
]  # fmt: skip
DEPTHWISE = [
    "BWD_W f32 NXC g32mb3ic32ih14oc32oh14kh3ph1",  # one block an image
    "BWD_W f32 NXC g17mb2ic17ih20oc17oh20kh3ph1",  # one group in the last panel; two blocks
    "BWD_W f32 NXC g31mb40ic31ih5oc31oh5kh3ph1",  # packed images, 10 a block
    "BWD_W bf16 NXC g40mb9ic40ih9oc40oh5kh3sh2ph1",  # taps that slide by two
    "BWD_W f16 NXC g33mb2ic33ih12oc33oh12kh5ph2",
    "BWD_W f32 NXC g16mb5ic16ih10oc16oh10kh7ph3",  # several tiles of taps
    "BWD_W f32 NXC g48mb2ic48ih13oc48oh13kh3ph2dh1",  # dilated: nothing slides
    "BWD_W f32 NXC g16mb8ic16ih20oc16oh8kh3sh2dh1ph0",  # stride and dilation: by one
    "BWD_W bf16 NXC g64mb7ic64ih19oc64oh7kh2sh3ph1",  # stride beyond the kernel
    "BWD_W f32 NXC g16mb2ic16iw700oc16ow700kw4pw2",  # rows cut every 256, segments every 64
    "BWD_W f32 NXC g24mb9ic24ih18oc24oh18kh1ph0",  # pointwise
    "BWD_W f32 NXC g20mb1ic20ih28oc20kh31ph15",
    "BWD_W f32 NXC g16mb1ic16iw600oc16kw512pw511",
    "BWD_W f32 NXC g20mb3ic20ih4oc20oh4kh9ph4",  # the kernel is larger than the image
    "BWD_W f32 NXC g33mb2ic33id4ih6iw5oc33od4oh6ow5kd3kh3kw3pd1ph1pw1",
    "BWD_W f32 NXC g16mb1ic16ih64oc16oh70kh3ph4",  # rows that see padding only
    "BWD_W f32 NXC g64mb64ic64ih5oc64oh1kh5sh36028797018963968ph0",  # the next position is nowhere in 2^64 bytes,
    "BWD_W f32 NXC g64mb9ic64ih5iw14oc64oh2ow14kh5kw3sh36028797018963968ph36028797018963968pw1",  # nor the first
]
IN_PLACE = [  # few channels, whose other operand is read in place
    "BWD_W f32 NXC mb3ic1ih20oc32oh20kh5ph2",
    "BWD_W f32 NXC mb9ic3ih11oc64oh11kh3ph1",
    "BWD_W f32 NXC mb2ic3iw700oc16ow700kw7pw3",  # two blocks of a row
    "BWD_W f32 NXC mb5ic4ih23iw9oc48oh12ow9kh3kw3sh2ph1pw1",
    "BWD_W f32 NXC mb4ic2ih19iw40oc16oh19ow36kh3kw3dw1ph1pw0",
    "BWD_W f32 NXC g2mb3ic4ih9oc64oh9kh3ph1",
    "BWD_W f32 NXC mb4ic16ih20oc3oh20kh1ph0",  # one tap, one panel of rows
    "BWD_W f32 NXC mb4ic2ih20oc64oh20kh1ph0",
]
KN2ROWS = [  # pads on both sides, phases of a stride, three nodes of 256 leaves
    "FWD_B f32 NXC mb2ic20ih9oc2oh9kh3ph1", "BWD_D bf16 NCX mb1ic3ih11oc17oh6kh3sh2ph1",
    "FWD_D f16 NXC mb1ic17iw604oc2ow7kw600pw1",
]  # fmt: skip
FEW_POSITIONS = [f"FWD_D f32 NXC mb2ic{channels}ih3oc70oh1kh3ph0" for channels in (16, 17, 33, 64)]
OWN_BIASES = ["FWD_B f32 NCX mb2ic40ih7oc24oh7kh1ph0", "FWD_B bf16 NCX mb1ic40ih11oc17oh11kh1ph0"]
GROUPS_OF_ONE_IMAGE = [  # also products of a batch of matrices
    "FWD_D f32 NCX g5mb1ic40ih7oc35oh7kh1ph0", "BWD_D f32 NCX g9mb1ic27iw66oc45ow66kw1pw0",
    "FWD_D bf16 NCX g3mb1ic99iw35oc48ow35kw1pw0", "BWD_D f16 NCX g2mb1ic34ih5iw3oc66oh5ow3kh1kw1ph0pw0",
]  # fmt: skip
FEW_CHANNELS = [  # vectors of two to four channels are interleaved, and squares of more are transposed
    f"FWD_D {fmt} NCX:OIX mb2ic{channels}oc5ih2oh1kh2sh1ph0iw{width}ow{(width - 1) // stride + 1}kw1sw{stride}pw0"
    for channels in (2, 3, 4, 5, 6) for fmt in ("bf16", "f32", "f16")
    for stride, width in product((1, 2), (1, 5, 15, 16, 17, 35))
]  # fmt: skip
POSITIONS = [  # with a stride: positions are transposed, up to a stride of four
    Conv(2, 1, 19, 18, (along(positions, 1, stride),))
    for positions, stride in product((2, 7, 15, 16, 17, 37), (2, 3, 4, 5))
]
GROUPED = {
    "depthwise", "depthwise, full vectors", "depthwise, set conflicts", "depthwise of strides and dilations",
    "depthwise, blocks cut a row", "depthwise, meeting nothing", "groups of 8", "depthwise multiplied",
    "depthwise, two blocks", "one dst position, small groups",
}  # fmt: skip
POINTWISE = {"one tap", "one tap, 600 channels", "2 and 33 channels, one tap"}
UNMET = Conv(2, 1, 3, 16, (Axis(5, 4, 2, pad_begin=0), Axis(2, 2, 1, 4, 1, 1, 2)))  # of the last axis, all
EXTENTS = ((), (300,), (9, 31), (5, 6, 7))  # of bias gradients
MULTIPLY_ADDS = 60_000  # of a problem of a class
FEW_RESULTS = [("dst", "NXC XIO", 1, 3), ("dst", "NCX OIX", 1, 1), ("dst", "NXC XIO", 25, 2), ("src", "NXC OIX", 5, 1)]
AWAY = (  # planes of padding; planes between those of dst
    "FWD_D f32 NCX g6mb2ic6id3ih5iw9oc6od5oh5ow9kd1kh3kw3pd1ph1pw1",
    "BWD_D f32 NCX g6mb2ic6id5ih5iw9oc6od3oh5ow9kd1kh3kw3sd2ph1pw1",
)


VOLUMES = (  # planes of padding, strides of two and data gradients of them, dilation
    "FWD_D f32 NCX:OIX g3mb2ic3id5ih6iw18oc3od5oh6ow18kd3kh3kw3pd1ph1pw1",
    "FWD_D bf16 NCX:OIX mb2ic2id2ih4iw40oc16od6oh4ow40kd3kh3kw3pd3ph1pw1",
    "BWD_D bf16 NCX:OIX g2mb1ic2id5ih7iw33oc2od3oh4ow17kd3kh3kw3sd2sh2sw2pd1ph1pw1",
    "FWD_D f16 NCX:OIX g2mb1ic4id7ih5iw34oc10od2oh3ow34kd2kh3kw3sd2sh2sw1dd2ph1pw1",
    "BWD_D f32 NCX:OIX g3mb2ic6id6ih3iw9oc3od4oh3ow9kd3kh1kw3pw1",
)
ENDS = [f"FWD_D {fmt} NCX:OIX g3mb1ic3oc3ih5iw64oh5ow64kh3kw3ph1pw1" for fmt in ("f32", "bf16")]  # with a vector


def geometries() -> list[str]:
    """Geometries with all strides, dilations and paddings that spatial stencils have, and widths around the lanes."""
    rng = np.random.default_rng(11)
    lines = list[str]()
    while len(lines) < 48:
        groups, src, dst = int(rng.integers(1, 6)), int(rng.choice([1, 1, 2, 3])), int(rng.choice([1, 1, 2, 5, 8]))
        if groups == 1:  # output channels are divided into groups of eight
            src, dst = (src, 16) if len(lines) % 2 == 0 else (16, dst)
        words = [f"g{groups}mb{rng.integers(1, 4)}ic{groups * src}oc{groups * dst}"]
        for axis in "hw"[len(lines) % 3 == 0 :]:
            kernel, stride, dilation = (int(rng.choice(some)) for some in ([1, 2, 3, 4, 5], [1, 1, 2], [0, 0, 1, 2]))
            stride = min(stride, kernel)  # positions that no tap meets are not contiguous for the kernel
            extent, pads = int(rng.choice([1, 7, 8, 15, 16, 17, 31, 32, 33, 64, 66])), rng.integers(0, kernel + 2, 2)
            out = (extent + int(pads.sum()) - (kernel - 1) * (dilation + 1) - 1) // stride + 1
            words.append(f"i{axis}{extent}o{axis}{out}k{axis}{kernel}s{axis}{stride}d{axis}{dilation}p{axis}{pads[0]}")
            if out < 1:
                break
        else:
            direction, fmt = ("FWD_D", "BWD_D")[len(lines) % 2], ("f32", "bf16", "f32", "f16")[len(lines) // 2 % 4]
            lines.append(f"{direction} {fmt} NCX:OIX {''.join(words)}")
    return lines


@dataclass(frozen=True)
class Row:
    """A problem, the kernel that it is about, and whether ways choose its layouts too, not only its types."""

    kernel: str
    words: str
    problem: Problem
    any_layout: bool = False


PAIRED = "pairs, one by one"  # which needs an instruction set with pairs
KERNELS: dict[str, Callable[[Any], bool]] = {
    "split-K": lambda plan: isinstance(plan, SplitKPlan),
    "depthwise": lambda plan: plan.strategy == "depthwise",
    "in place": lambda plan: plan.spec.b.in_place and not plan.spec.groups_in_lanes,
    "kn2row": lambda plan: plan.spec.body == KN2ROW,
    "weights in place": lambda plan: "B from weights (in" in str(plan),
    "masked": lambda plan: isinstance(plan, GemmPlan) and plan.spec.masked,
    "transposed GEMM": lambda plan: plan.spec.body == TRANSPOSED,
    "grouped stencil": lambda plan: plan.spec.body == GROUPED_STENCIL,
    "packed A": lambda plan: type(plan) is GemmPlan and not plan.spec.a.in_place,
    "strided positions": lambda plan: isinstance(plan, GemmPlan) and plan.spec.a.contiguous == SPATIAL,
    "spatial stencil": lambda plan: plan.spec.body == SPATIAL_STENCIL,
    PAIRED: lambda plan: plan.spec.body == POSITIONS_GEMM and plan.spec.pairs and plan.spec.k_per_add == 1,
    "forward": lambda plan: True,
    "bias gradient": lambda plan: isinstance(plan, SplitKPlan),
}


def rows() -> Iterator[Row]:
    lines = {
        "split-K": SPLIT_K, "depthwise": DEPTHWISE, "in place": IN_PLACE, "kn2row": KN2ROWS,
        "weights in place": FEW_POSITIONS, "transposed GEMM": [*OWN_BIASES, *GROUPS_OF_ONE_IMAGE],
        "packed A": FEW_CHANNELS, "forward": AWAY,
        PAIRED: [f"FWD_D bf16 NXC mb1ic{channels}ih4oc17oh4kh2sh2ph0" for channels in (19, 31, 3)],  # the last is odd
        "spatial stencil": [*VOLUMES, *ENDS, *geometries()],
    }  # fmt: skip
    for kernel, some in lines.items():
        for line in some:
            yield Row(kernel, line, problem_of(line))
    for conv in POSITIONS:
        one = posed(conv, "dst", False, MIXED[0], "NCX OIX", bias=True)
        yield Row("strided positions", str(conv.axes[0]), one)
    for number, (role, layouts, results, kernel) in enumerate(FEW_RESULTS):
        for lanes in {ISAS[name].lanes for name in HOST}:
            count = min(results, 4 * lanes - 1)  # a panel has four vectors at most
            conv = Conv(2, 1, *((300, count) if role == "dst" else (count, 300)), (along(3, kernel),))
            yield Row("masked", f"{number}, {count}", posed(conv, role, False, MIXED[0], layouts, bias=True))
    for (name, conv), role in product(PROBLEMS.items(), ROLES):
        one = posed(conv, role, False, MIXED[0], "NXC XIO", bias=True)
        yield Row("forward", f"{name}, {role}", one, any_layout=True)
        if name in GROUPED:
            layouts = ("NXC XIO", "NCX OIX")[len(name) % 2]
            yield Row("grouped stencil", f"{name}, {role}", posed(conv, role, False, MIXED[0], layouts, bias=True))
        if name in POINTWISE:
            one = posed(conv, role, False, MIXED[0], "NCX OIX", bias=True)
            yield Row("transposed GEMM", f"{name}, {role}", one)
    for stride, dst in product((2, 3, 5), (2, 4, 9)):  # the last position is padding, where the next image begins
        conv = Conv(2, 1, 16, 16, (along(dst, 1, stride, pads=(0, 1)),))
        one = posed(conv, "dst", False, MIXED[0], "NXC XIO", bias=True)
        yield Row("forward", f"the last of {dst} positions absent, stride {stride}", one, any_layout=True)
    yield Row("forward", "no tap meets", posed(UNMET, "src", False, MIXED[0], "NXC XIO", bias=True), any_layout=True)
    gradient = problem_of(SPLIT_K[0])
    for name, of_class in CLASSES.items():
        for number, conv in enumerate(islice(draw(of_class, np.random.default_rng(5), MULTIPLY_ADDS), 4)):
            yield Row("split-K", f"{name}, {number}", replace(gradient, geometry=conv), any_layout=True)
    summed = prepare("BiasAddBackward", (np.ones((1, 1), np.float32),), {"data_format": "NCX"}).problem
    for extents, (batch, channels), layout in product(EXTENTS, ((1, 1), (3, 67), (19, 16)), ("NXC", "NCX")):
        one = replace(summed, geometry=Channels(batch, channels, extents), layouts=(layout, "NCX"))
        yield Row("bias gradient", f"{one.geometry}, {layout}", one)
