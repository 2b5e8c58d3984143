"""Maps and sums per channel: generated code has the bits of the slow execution, in every format and memory format."""

from __future__ import annotations

import hashlib
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from convgrad.engines.addresses import address_of
from convgrad.engines.llvm import jit
from convgrad.engines.llvm.elementwise import combinations, indexed, maps, run, stages, sums, trees
from convgrad.engines.tensors import PER_ROW, Combinations, Extents, Strided, Summands
from convgrad.formats import FORMATS
from convgrad.functional.elementwise import combinations_by_numpy, compute_by_numpy, sums_by_numpy
from convgrad.plan.machine import ISAS
from convgrad.spec.elementwise.arithmetic import NumpyOperations
from convgrad.spec.elementwise.combinations import combined, table_of
from convgrad.spec.elementwise.sums import add_rows, section_sums, sections_of
from convgrad.spec.elementwise.sums import totals as totals_by_numpy
from convgrad.spec.elementwise.table import MAPS
from tests.engines.guarded import Guarded
from tests.support.engine_helpers import HOST
from tests.support.helpers import assert_same_bits
from tests.support.tiers import tiers

Array = NDArray[np.generic]
LIMIT = run.TASK_ELEMENTS
EXTENTS: tuple[Extents, ...] = (  # around vectors, unrolled vectors, and tasks
    *[(1, 1, columns) for columns in (1, 3, 8, 15, 16, 17, 63, 64, 65, LIMIT - 1, LIMIT, LIMIT + 1, 2 * LIMIT + 5)],
    *[(2, 3, columns) for columns in (1, 7, 16, 49, 130)],
    (1, LIMIT + 3, 1),
    (3, 131, 127),
    (2, 2, LIMIT + 9),
)
FIFTHS = 5  # of EXTENTS in a test
SPECIAL = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3e38, -3e38, 88.8, -103.9, 1, -1], np.float32)


def drawn(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return numbers near 0, and some special ones."""
    found = (rng.standard_normal(shape) * 5).astype(np.float32)
    special = rng.random(shape) < 0.05
    found[special] = rng.choice(SPECIAL, int(special.sum()))
    return found


class Memory:
    """A tensor in guarded memory; it is repeated along the axes whose extent in ``shape`` is 1."""

    def __init__(self, values: Array, extents: Extents, fmt: str, per_row: str = "f32") -> None:
        dtype = FORMATS[fmt or per_row].dtype
        self.memory = Guarded(values.size * dtype.itemsize, at_end=True)
        self.array = np.ndarray(values.shape, dtype, self.memory.bytes.data)
        with np.errstate(over="ignore"):
            self.array[...] = values.astype(dtype)
        outer, row = (stride * (n > 1) for stride, n in zip(self.array.strides[:2], values.shape[:2], strict=True))
        self.strides = Strided(fmt, outer, row)


def described(tensors: list[Memory], extents: Extents) -> tuple[tuple[Strided, ...], Extents, list[int]]:
    return tuple([one.strides for one in tensors]), extents, [one.memory.address for one in tensors]


def called(stage: run.PreparedStage, threads: int, addresses: list[int]) -> None:
    run.prepared((stage,), threads)(addresses, None)


def mapped(isa: str, name: str, tensors: list[Memory], extents: Extents, threads: int) -> None:
    strides, _, addresses = described(tensors, extents)
    called(run.map_stage(ISAS[isa], name, strides, extents), threads, addresses)


def results_of(name: str) -> int:
    """Return the number of results of a map."""
    dtype = np.float64 if MAPS[name].wide else np.float32
    operands = [np.ones(1, dtype)] * len(MAPS[name].operands)
    with np.errstate(all="ignore"):
        found = MAPS[name].definition(NumpyOperations(dtype), *operands)
    return len(found) if isinstance(found, tuple) else 1


@tiers("isa, name, fmt, first", HOST, MAPS, ("f32", "bf16", "f16"), range(FIFTHS), every=151)
def test_maps_have_the_bits_of_their_definitions(isa: str, name: str, fmt: str, first: int) -> None:
    """Every fifth extent, with the same operands per row: they and the number of stored results make kernels."""
    rng = np.random.default_rng(1)
    places, wide = MAPS[name].operands, "f64" if MAPS[name].wide else fmt
    for number, extents in list(enumerate(EXTENTS))[first::FIFTHS]:
        outer, rows, columns = extents
        shapes = (outer, rows, columns), (1, rows, columns), (1, 1, columns), (outer, rows, 1), (1, 1, 1)
        kinds = [0] + [(number + at) % 5 for at in range(1, len(places))]
        per_row = [kind > 2 or columns == 1 for kind in kinds]
        formats = [PER_ROW if one else (fmt, wide)[kind % 2] for one, kind in zip(per_row, kinds, strict=True)]
        number_format = "f64" if MAPS[name].wide else "f32"
        operands = [
            Memory(drawn(rng, shapes[kind]) / 3, extents, one, number_format)
            for kind, one in zip(kinds, formats, strict=True)
        ]
        results = 1 + number % results_of(name)
        found, expected = ([Memory(np.full(extents, np.nan), extents, fmt) for _ in range(results)] for _ in range(2))
        compute_by_numpy(name, *described([*operands, *expected], extents))
        mapped(isa, name, [*operands, *found], extents, 1 + number % 3)
        for one, other in zip(found, expected, strict=True):
            assert_same_bits(one.array, other.array, (extents, kinds))
        assert all(one.memory.intact() for one in (*operands, *found))


@pytest.mark.parametrize("isa", HOST)
def test_fmod_is_exact(isa: str) -> None:
    """For all bits, for quotients near a whole number, and for the largest ones."""
    rng, extents = np.random.default_rng(10), (1, 1, 40_000)
    shape = 4, 10_000
    x, y = rng.integers(0, 1 << 32, (2, *shape), np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        x[1] = y[1] * rng.integers(1, 1 << 24, shape[1])
        x[2] = np.nextafter(x[1], np.float32(0))
        y[2] = y[1]
        x[3], y[3] = np.finfo(np.float32).max, rng.integers(1, 1 << 24, shape[1]).astype(np.uint32).view(np.float32)
        expected = np.fmod(x, y)
    operands = [Memory(each.reshape(extents), extents, "f32") for each in (x, y)]
    found = Memory(np.zeros(extents), extents, "f32")
    mapped(isa, "fmod", [*operands, found], extents, 1)
    assert_same_bits(found.array, np.where(np.isnan(expected), np.float32(np.nan), expected).reshape(extents), "exact")


IN_F64 = [
    "add",
    "lerp",
    "addcdiv",
    "maximum",
    "fmin",
    "clamp",
    "softshrink",
    "shrink_backward",
    "power_minus_3_quarters",
    "hardswish_backward",
]


@pytest.mark.parametrize(("isa", "name"), list(product(HOST, IN_F64)))
def test_maps_of_f64_compute_in_f64(isa: str, name: str) -> None:
    rng, extents, shapes = np.random.default_rng(9), (2, 3, 67), ((2, 3, 67), (1, 1, 67), (2, 3, 1), (1, 1, 1))
    formats = "f64", "f32", PER_ROW, PER_ROW
    operands = [
        Memory(drawn(rng, shape) / np.float64(3), extents, fmt, "f64")
        for shape, fmt, _ in zip(shapes, formats, MAPS[name].operands, strict=False)
    ]
    found, expected = (Memory(np.full(extents, np.nan), extents, "f64") for _ in range(2))
    compute_by_numpy(name, *described([*operands, expected], extents))
    mapped(isa, name, [*operands, found], extents, 1)
    assert_same_bits(*[np.where(np.isnan(one.array), np.nan, one.array) for one in (found, expected)], name)


def test_results_may_be_operands() -> None:
    x = drawn(np.random.default_rng(2), (1, 1, 5000))
    own, other = Memory(x, x.shape, "f32"), Memory(np.zeros_like(x), x.shape, "f32")
    for result in (other, own):
        mapped(HOST[0], "silu", [own, result], (1, 1, 5000), 2)
    assert_same_bits(own.array, other.array, "in place")


SHAPES: tuple[Extents, ...] = tuple(  # images, channels, positions
    [
        *product((1, 3), (1, 15, 16, 17, 63, 64, 65, 130), (1, 15, 16, 17, 49)),
        *product((2,), (1, 3, 66), (511, 512, 513, 1023, 1024, 1025, 2100)),
        (1030, 5, 1),
        (70, 20, 33),
        (2, 2, 40_000),
        (1, 3000, 96),
    ]
)


def stored(values: Array, last: bool, fmt: str) -> Guarded:
    """Return a tensor (images, channels, positions) in guarded memory, with channels last or not."""
    dense = np.ascontiguousarray((values.transpose(0, 2, 1) if last else values).astype(FORMATS[fmt].dtype))
    memory = Guarded(dense.nbytes, at_end=True)
    memory.bytes[...] = dense.view(np.uint8).ravel()
    return memory


def summands_of(shape: Extents, last: bool, formats: tuple[str, ...]) -> Summands:
    _, channels, positions = shape
    sizes = [FORMATS[fmt].itemsize for fmt in formats]
    row = channels if last else positions
    operands = [Strided(fmt, channels * positions * n, row * n) for fmt, n in zip(formats, sizes, strict=True)]
    return Summands(("squares", "products")[len(formats) - 1], tuple(operands), shape, last, True, True, True)


def summed(isa: str, summands: Summands, operands: list[Guarded], threads: int) -> NDArray[np.float64]:
    images, channels, positions = summands.shape
    found = np.full((summands.sums, sections_of(images, positions, summands.combined).count, channels), np.nan)
    addresses = [*[one.address for one in operands], address_of(found)]
    called(run.sums_stage(ISAS[isa], summands, threads), threads, addresses)
    return found


@tiers(
    "isa, last, fmt, combined, first", HOST, (False, True), ("f32", "bf16", "f16"), (False, True), range(3), every=11
)
def test_sums_have_the_bits_of_their_order(isa: str, last: bool, fmt: str, combined: bool, first: int) -> None:
    """Every third shape: it tells which sums there are, which makes kernels."""
    rng = np.random.default_rng(3)
    for number, shape in list(enumerate(SHAPES))[first::3]:
        values = [rng.standard_normal(shape).astype(FORMATS[fmt].dtype).astype(np.float32) for _ in range(2)]
        operands = [stored(each, last, fmt) for each in values[: 2 - number % 2]]
        plain, products = ((True, True), (True, False), (False, True))[number % 3]
        summands = summands_of(shape, last, (fmt,) * len(operands))._replace(plain=plain, products=products)
        summands = summands._replace(combined=combined)
        found = summed(isa, summands, operands, 1 + number % 3)
        factors = [None] * plain + [values[len(operands) - 1]] * products
        sections = sections_of(shape[0], shape[2], combined)
        assert_same_bits(found, np.stack([section_sums(values[0], one, sections) for one in factors]), shape)


TERMS = {  # maps of 0 that are not 0, with the places of their operands
    "weighted_products": ("all", "all", "column"),
    "products_with_normalized": ("all", "all", "row", "row", "row"),
    "exp_of_difference": ("all", "channel"),
    "cross_entropy_of_logits": ("all", "all", "row"),
}


@tiers("isa, name, last", HOST, TERMS, (False, True), every=5)
def test_sums_of_maps_have_the_bits_of_their_definitions(isa: str, name: str, last: bool) -> None:
    rng = np.random.default_rng(7)
    for shape in SHAPES[::3]:
        images, channels, positions = shape
        rows, length = (positions, channels) if last else (channels, positions)
        extents = images, rows, length
        shapes = {"all": extents, "column": (1, 1, length), "row": (1, rows, 1)}
        shapes["channel"] = (images, 1, length) if last else shapes["row"]
        places, number = [shapes[place] for place in TERMS[name]], "f64" if MAPS[name].wide else "f32"
        kinds = [PER_ROW if place == shapes["row"] and n else "f32" for n, place in enumerate(places)]
        operands = [
            Memory(rng.standard_normal(place), extents, kind, number) for place, kind in zip(places, kinds, strict=True)
        ]
        strides, addresses = tuple([one.strides for one in operands]), [one.memory.address for one in operands]
        for stored in (False, True):
            terms = [Memory(np.full(extents, np.nan), extents, "f32") for _ in range(2 * stored)]
            tensors = *strides, *[one.strides for one in terms[:1]]
            summands = Summands(name, tensors, shape, last, True, results_of(name) > 1, combined=True, stored=stored)
            found = summed(isa, summands, [one.memory for one in (*operands, *terms[:1])], 2)
            expected = np.full_like(found, np.nan)
            sums_by_numpy(summands, [*addresses, *[one.memory.address for one in terms[1:]]], expected)
            assert_same_bits(found, expected, shape)
            if stored:
                assert_same_bits(terms[0].array, terms[1].array, shape)
                assert terms[0].memory.intact()


@pytest.mark.parametrize("shape", [(3, 5, 7), (2, 4, 1024), (40, 3, 100)])
def test_sums_of_integers_are_exact(shape: Extents) -> None:
    values = np.random.default_rng(4).integers(-1000, 1000, shape).astype(np.float32)
    for last in (False, True):
        summands = summands_of(shape, last, ("f32",))
        found = summed(HOST[0], summands, [stored(values, last, "f32")], 2)
        totals = totals_by_numpy(found)
        assert totals[0].tolist() == values.sum((0, 2)).tolist()
        assert totals[1].tolist() == (values * values).sum((0, 2), np.float64).tolist()


ROWS = 1, 2, 15, 16, 17, 31, 32, 33, 255, 256, 257, 300, 4097  # around whole and partial nodes of each level


@pytest.mark.parametrize(("isa", "rows"), list(product(HOST, ROWS)))
def test_trees_have_the_bits_of_their_order(isa: str, rows: int) -> None:
    rng = np.random.default_rng(8)
    for matrices, width, by_rows in ((1, 1, 0), (3, 1, 1), (2, 7, 3), (1, 8, 0), (2, 9, 0), (1, 33, 9), (2, 64, 0)):
        shape = matrices, rows, width
        values = Memory(drawn(rng, shape), shape, "f64")
        found = Memory(np.full((matrices, 1, width), np.nan), shape, "f64")
        stage = run.trees_stage(ISAS[isa], *shape, by_rows)
        called(stage, 1 + width % 3, [values.memory.address, found.memory.address])
        both = found.array[:, 0], totals_by_numpy(values.array)
        assert_same_bits(*[np.where(np.isnan(one), np.nan, one) for one in both], shape)  # maps make NaNs canonical
        assert found.memory.intact()


COMBINED = [(1, 1, 5), (3, 2, 17), (2, 1, 64), (40, 3, 130), (5, 70, 300)]  # images, rows, positions
RESULTS = (1, 1, 0), (15, 1, 2), (33, 1, 0), (65, 1, 1), (7, 5, 0), (9, 64, 2), (3, 70, 0)  # columns, whether by rows


@tiers("isa, fmt, out, from_zero, first", HOST, *[("f32", "bf16", "f16")] * 2, (False, True), range(2), every=29)
def test_combinations_have_the_bits_of_their_order(isa: str, fmt: str, out: str, from_zero: bool, first: int) -> None:
    """Every second shape with results, which have different numbers of terms, some of them none."""
    rng = np.random.default_rng(9)
    for (images, rows, positions), (results, columns, by_rows) in list(product(COMBINED, RESULTS))[first::2]:
        owners = rng.integers(0, results, results + 3)
        table = table_of(results, owners, rng.integers(0, positions, len(owners)), drawn(rng, owners.shape))
        of = Combinations((fmt, out), images, rows, positions, columns, results, table.terms, from_zero)
        values = drawn(rng, (images * rows, positions, columns))
        x, numbers = Memory(values, values.shape, fmt), Guarded(table.numbers.nbytes, at_end=True)
        numbers.bytes[...] = table.numbers.view(np.uint8).ravel()
        shape = (images * rows, results, columns)
        found, exact = (Memory(np.full(shape, np.nan), shape, out) for _ in range(2))
        addresses = [[x.memory.address, numbers.address, one.memory.address] for one in (found, exact)]
        called(run.combinations_stage(ISAS[isa], of, by_rows), 1 + results % 3, addresses[0])
        combinations_by_numpy(of, addresses[1])
        assert_same_bits(found.array, exact.array, of)
        assert all(one.intact() for one in (x.memory, numbers, found.memory))


def test_combinations_take_terms_in_order() -> None:
    table = table_of(3, np.array([2, 0, 2, 2]), np.array([1, 0, 0, 2]), np.float32([1, 3, 2, 1]))
    x = np.array([[[-0.0], [1e8], [-1e8]]], np.float32)
    assert combined(x, table, from_zero=False).ravel().tolist() == [-0.0, -0.0, 0.0]
    assert np.signbit(combined(x, table, from_zero=True)).ravel().tolist() == [False] * 3


@pytest.mark.parametrize("isa", HOST)
def test_rows_are_added_in_the_order_of_an_index(isa: str) -> None:
    rng = np.random.default_rng(9)
    shapes = [(1, 3, 1), (4, 5, 1), (2, 1, 3), (1, 7, 16), (2, 4, 100), (1, 6, 256)]
    shapes += [(1 + places % 2, places, width) for places in (1, 2, 3, 33) for width in (63, 64, 65, 200)]
    for matrices, places, width in shapes:
        for threads, count in ((1, 1), (2, 40), (3, 40), (8, 40)):  # places are divided among threads
            shape, rows_shape = (matrices, places, width), (matrices, count, width)
            totals, rows = Memory(drawn(rng, shape), shape, "f32"), Memory(drawn(rng, rows_shape), rows_shape, "f32")
            index = rng.integers(-1, places + 1, count)
            expected = totals.array.copy()
            add_rows(expected, index, rows.array)
            addresses = [totals.memory.address, address_of(index), rows.memory.address]
            called(run.indexed_stage(ISAS[isa], shape, count, threads), threads, addresses)
            assert_same_bits(totals.array, expected, (shape, count))
            assert totals.memory.intact()


@tiers("isa", [isa for isa in ISAS if not ISAS[isa].tiles], long=[isa for isa in ISAS if ISAS[isa].tiles])
def test_all_are_compiled_for_every_instruction_set(isa: str) -> None:
    maps_of_f16 = [
        maps.MapSpec(ISAS[isa], name, (*("f32",) * len(MAPS[name].operands), "f16"))
        for name in ("gelu_tanh_backward", "log1p", "normalize", "fmod")
    ]
    both = [
        sums.SumsSpec(ISAS[isa], "products", ("f32", "bf16"), last, True, True, stored=False) for last in (False, True)
    ]
    both += [combinations.CombinationsSpec(ISAS[isa], "f16", "bf16", True, gathers) for gathers in (False, True)]
    both += [indexed.IndexedSpec(ISAS[isa], lanes) for lanes in (1, ISAS[isa].lanes)]
    specs = *maps_of_f16, *both, trees.TreesSpec(ISAS[isa]), maps.ListsSpec(maps_of_f16[0])
    for some, by_rows in ((specs, False), (specs[-2:], True)):
        assert "driver:" in jit.assembly(stages.module_of(some, by_rows), ISAS[isa])


GOLDEN = "65fc41a7b9587c70"  # of all maps and sums on the same numbers: the same on every instruction set


@pytest.mark.every(2)
@pytest.mark.parametrize("isa", HOST)
def test_digest_of_all_maps_and_sums(isa: str) -> None:
    digest = hashlib.sha256()
    extents = (1, 1, 3001)
    for name, one in MAPS.items():
        rng = np.random.default_rng(list(name.encode()))  # so that new maps change no other map's operands
        operands = [Memory(drawn(rng, extents), extents, "f32") for _ in one.operands]
        results = [Memory(np.zeros(extents), extents, "f32") for _ in range(results_of(name))]
        mapped(isa, name, [*operands, *results], extents, 2)
        for result in results:
            digest.update(result.array.tobytes())
    values = np.random.default_rng(6).standard_normal((3, 37, 1500)).astype(np.float32)
    for last in (False, True):
        summands = summands_of((3, 37, 1500), last, ("f32",))
        digest.update(summed(isa, summands, [stored(values, last, "f32")], 2).tobytes())
    assert digest.hexdigest()[:16] == GOLDEN
