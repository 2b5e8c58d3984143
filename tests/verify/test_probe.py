"""The order of sums that a probe reveals: our own, orders made up here, and answers that are those of no order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from math import ceil, fsum, log2
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import convgrad
from convgrad import notation
from convgrad.errors import UnsupportedError
from convgrad.formats import BF16, F32, F64
from convgrad.functional.call import prepare
from convgrad.spec.chains import tree
from convgrad.spec.order import SumOrder, order_of
from convgrad.spec.ordered import evaluate_in_order
from convgrad.verify import check
from convgrad.verify.probe import Order, probe
from convgrad.verify.probe.blocks import Chain
from convgrad.verify.probe.tree import along, grow
from tests.support.tiers import tiers

Array = NDArray[Any]
Sum = Callable[[Array], Array]  # of rows of terms, a column a sum


def revealed(line: str, function: Callable[..., object] = convgrad.run, **options: Any) -> Order:
    (call,) = notation.calls(notation.read(line))
    attributes: dict[str, Any] = dict(call.attributes)
    return probe(function, call.operator, *call.shapes, operand_type=call.format, **options, **attributes)


def specified_blocks(line: str) -> tuple[int, ...]:
    order = order_of(notation.problem(line))
    ends = (*order.begins().tolist(), order.unit_terms)
    return order.units * tuple(b - a for a, b in pairwise(ends))


# Every tap exists at the element looked at, or blocks would lack terms.
OURS = (
    "BWD_W f32 NXC mb1ic4ih24oc40oh24kh1ph0",
    "BWD_W f32 NXC mb3ic4ih24oc40oh24kh3ph1",
    "BWD_W f32 NCX mb8g2ic6ih14oc32oh14kh1ph0",
    "BWD_W f32 NXC mb2ic64iw300oc6ow300kw1pw0",
    "FWD_D f32 NXC mb1ic64ih8oc32oh8kh3ph1",
    "FWD_B f32 NXC mb1ic64ih8oc32oh8kh3ph1",
    "FWD_D f32 NXC mb1ic64ih9oc3oh9kh3ph1",
    "BWD_D f32 NCX mb1ic32ih8oc64oh8kh3ph1",
    "BWD_D f16 NXC mb1ic32ih8oc64oh8kh3ph1",
    "FWD_D bf16 NXC mb1ic24ih8oc32oh8kh3ph1",
    "deconv BWD_W f32 NXC mb5ic4ih14oc32oh14kh1ph0",
)


@tiers("line", OURS, every=4)
def test_our_own_order_is_the_specified_one(line: str) -> None:
    order = revealed(line)
    problem = notation.problem(line)
    assert (order.blocks, order.seen) == (specified_blocks(line), order.terms)
    assert order.height == order_of(problem).height + ("bias" in problem.operands)
    assert order.accumulation is F32


def test_a_chain_takes_pairs_as_specified() -> None:
    chain = revealed("FWD_D bf16 NXC mb1ic9iw4oc32ow4kw1pw0").tree
    assert isinstance(chain, Chain)
    assert chain.terms == (0, 1, 3, 2, 5, 4, 7, 6, 8)  # nothing tells the first two apart


def test_pairs_in_short_blocks_are_not_taken_for_terms_joined_at_once() -> None:
    """Neighbours alone cannot tell 0, 1, 3, 2 from 0, 1 and 2, 3 at once, and random pairs seldom lie in one block."""
    taken = np.arange(1500) ^ 1
    order = of_orders(lambda terms: cut((10,) * 150, chain, terms[taken]), 1500)
    assert order.height == 10 + 149
    assert order.accumulation is F32


def in_order(operator: str, *inputs: Any, **attributes: Any) -> Array:
    """Compute a call in the specified order, without kernels."""
    prepared = prepare(operator, inputs, {key: value for key, value in attributes.items() if key != "dtype"}, "f32")
    out = np.empty(prepared.problem.output_shape, np.float32)
    prepared.canonical_output(out)[...] = evaluate_in_order(prepared.problem, prepared.operands)
    return out


def in_two_chains(order: SumOrder) -> tuple[int, ...]:
    """Return the sizes of the chains of an order whose blocks have two, sorted by their first terms."""
    ends = (*order.begins().tolist(), order.unit_terms)
    sizes = [b - a for a, b in pairwise(ends)]
    return order.units * tuple(size for block in sizes for size in (-(-block // 2), block // 2) if size)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("FWD_D bf16 NXC mb1ic32iw4oc32ow4kw1pw0", "2 lanes, joined one after the other"),
        ("FWD_D bf16 NXC mb1ic64iw4oc32ow4kw1pw0", "2 blocks of 2 lanes, joined by a tree"),
        ("FWD_D bf16 NXC mb1ic33iw4oc32ow4kw3pw1", "6 blocks of up to 2 lanes, joined by a tree"),
        ("BWD_D bf16 NCX mb1ic32iw6oc40ow6kw3pw1", "6 blocks of 2 lanes, joined by a tree"),
        ("FWD_D bf16 NXC mb1ic64iw4oc3ow4kw3pw1", "6 blocks of 2 lanes, joined by a tree"),
        ("FWD_D bf16 NXC mb1g2ic64iw4oc32ow4kw3pw1", "3 blocks of 2 lanes, joined by a tree"),
    ],
)
def test_blocks_of_two_chains_are_revealed(line: str, words: str) -> None:
    specified = order_of(notation.problem(line))
    order = revealed(line, in_order, dtype="f32")
    assert (order.blocks, order.height, order.seen) == (in_two_chains(specified), specified.height, order.terms)
    assert (order.name, order.accumulation) == (words, F32)


def test_31_bf16_channels_are_still_added_in_pairs() -> None:
    order = revealed("FWD_D bf16 NXC mb1ic31iw4oc32ow4kw1pw0", in_order, dtype="f32")
    assert isinstance(order.tree, Chain)
    assert order.tree.terms == (0, 1, *(term ^ 1 for term in range(2, 30)), 30)


@tiers("channels", [128], long=[512])
def test_the_depth_of_a_long_sum_of_two_chains_is_an_upper_limit(channels: int) -> None:
    def add(terms: Array) -> Array:
        blocks = [chain(b[::2]) + chain(b[1::2]) for b in np.split(terms, len(terms) // 32)]
        return tree(blocks)

    order = of_orders(add, 9 * channels)
    specified = order_of(notation.problem(f"FWD_D bf16 NXC mb1ic{channels}ih8oc32oh8kh3ph1"))
    assert (order.terms, order.impossible) == (specified.terms, "")
    assert specified.height <= order.height <= 1.25 * specified.height


def test_a_bias_gradient() -> None:
    shape = (2, 20, 20, 32)
    order = probe(convgrad.run, "BiasAddBackward", shape)
    assert order.blocks == 2 * (240, 160)


def test_long_sums_are_sampled() -> None:
    line = "BWD_W f32 NXC mb2ic1iw10000oc64ow10000kw1pw0"
    order = revealed(line)
    assert order.terms == 20_000
    assert order.seen < 1000
    assert order.calls < 60
    assert order.blocks == specified_blocks(line)
    assert order.height == order_of(notation.problem(line)).height


def chain(terms: Array) -> Array:
    return np.add.accumulate(terms, axis=0, dtype=terms.dtype)[-1]


def cut(sizes: tuple[int, ...], join: Sum, terms: Array) -> Array:
    return join(np.stack([chain(part) for part in np.split(terms, np.cumsum(sizes)[:-1])]))


def halves(terms: Array) -> Array:
    middle = -(-len(terms) // 2)
    return terms[0] if len(terms) == 1 else halves(terms[:middle]) + halves(terms[middle:])


def lanes(number: int, join: Sum, terms: Array) -> Array:
    return join(np.stack([chain(terms[lane::number]) for lane in range(number)]))


def at_random(seed: int, terms: Array) -> Array:
    rng = np.random.default_rng(seed)
    left = list(terms)
    while len(left) > 1:
        one, other = (left.pop(rng.integers(len(left))) for _ in range(2))
        left.append(one + other)
    return np.asarray(left[0])


def at_once(number: int, terms: Array) -> Array:
    """Add some products to the sum so far at once: what is small beside the largest of them is cut off."""
    total = np.zeros_like(terms[0])
    for begin in range(0, len(terms), number):
        together = np.vstack([total[None], terms[begin : begin + number]])
        largest = np.abs(together).max(axis=0)
        total = np.where(np.abs(together) < largest * 2.0**-30, 0, together).sum(axis=0, dtype=np.float64)
        total = total.astype(np.float32)
    return total


def weights_by(add: Sum) -> Callable[..., Array]:
    """Return a weight gradient of 1-D layers of one tap that adds its products in this way."""

    def gradient(operator: str, src: Array, diff_dst: Array, *rest: object, **attributes: object) -> Array:
        products = src.reshape(-1, 1) * diff_dst.reshape(-1, diff_dst.shape[-1])
        return add(products.astype(np.float32))[None, None]

    return gradient


def of_orders(add: Sum, terms: int = 200, **options: Any) -> Order:
    return revealed(f"BWD_W f32 NXC mb1ic1iw{terms}oc48ow{terms}kw1pw0", weights_by(add), **options)


MADE_UP: dict[str, tuple[Sum, str, int, object]] = {
    "a chain": (chain, "one chain", 200, 200),
    "backwards": (lambda terms: chain(terms[::-1]), "one chain, the last term first", 200, 200),
    "in doubles": (lambda t: chain(t.astype(np.float64)).astype(np.float32), "one chain", 200, 200),
    "halves": (halves, "pairwise", ceil(log2(200)) + 1, 9),
    "lanes of 8": (partial(lanes, 8, chain), "8 lanes, joined one after the other", 25 + 7, (25,) * 8),
    "lanes of 16, by halves": (partial(lanes, 16, halves), "16 lanes, joined by a tree", 13 + 4, 17),
    "split-k 8": (partial(cut, (25,) * 8, chain), "8 blocks, joined one after the other", 25 + 7, (25,) * 8),
    "uneven blocks": (partial(cut, (90, 70, 40), chain), "3 blocks, joined one after the other", 92, (90, 70, 40)),
    "the last longest": (partial(cut, (40, 40, 120), chain), "3 blocks, joined one after the other", 121, 121),
    "4 at once": (partial(at_once, 4), "", 200, 200),
}


@pytest.mark.parametrize("name", MADE_UP)
def test_orders_made_up(name: str) -> None:
    add, words, height, declared = MADE_UP[name]
    order = of_orders(add)
    assert order.impossible == ""
    assert (order.height, order.declared) == (height, declared)
    assert words in order.name
    assert order.accumulation is {"in doubles": F64, "4 at once": None}.get(name, F32)


@pytest.mark.parametrize("seed", range(6))
def test_any_tree(seed: int) -> None:
    """A tree's height is how often its deepest term was added; the product is one rounding more."""
    terms, order = 150, of_orders(partial(at_random, seed), 150)
    deepest = at_random(seed, np.array([Depth(0)] * terms, object)[:, None])
    assert order.height == deepest.item().depth + 1


class Depth:
    """Counts additions on the longest way to a sum."""

    def __init__(self, depth: int) -> None:
        self.depth = depth

    def __add__(self, other: Depth) -> Depth:
        return Depth(max(self.depth, other.depth) + 1)


def test_neighbours_tell_the_same_tree_as_random_terms() -> None:
    rng = np.random.default_rng(3)
    cuts = rng.permutation(63) + 1  # the larger, the later the two sides are joined

    def joins(pairs: Array) -> Array:
        found = []
        for low, high in np.sort(pairs, axis=1).tolist():
            top = cuts[low:high].max()
            begin = max((at + 1 for at in range(low) if cuts[at] > top), default=0)
            end = min((at for at in range(high, 63) if cuts[at] > top), default=63)
            found.append(end - begin + 1)
        return np.array(found)

    seen = np.arange(64)
    first, second = along(64, seen, joins(np.stack([seen[:-1], seen[1:]], 1))), grow(joins, 64, seen)
    assert first is not None
    pairs = np.stack(np.triu_indices(64, 1), 1)
    assert [first.join(a, b) for a, b in pairs] == [second.join(a, b) for a, b in pairs] == joins(pairs).tolist()
    assert first.height == second.height


def winograd(operator: str, src: Array, weights: Array, **rest: object) -> Array:
    """Return a forward of 3 taps by F(2, 3)."""
    half = np.float32(0.5)
    g = [weights[0], (weights[0] + weights[1] + weights[2]) * half, (weights[0] - weights[1] + weights[2]) * half]
    g.append(weights[2])
    dst = np.zeros((1, src.shape[1] - 2, weights.shape[2]), np.float32)
    for p in range(0, dst.shape[1], 2):
        d = src[0, p : p + 4]
        m = [
            chain(x[:, None] * y) for x, y in zip((d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]), g, strict=True)
        ]
        dst[0, p], dst[0, p + 1] = m[0] + m[1] + m[2], m[1] - m[2] - m[3]
    return dst


def by_fft(operator: str, src: Array, weights: Array, **rest: object) -> Array:
    extent = src.shape[1]
    spectrum = np.einsum("fc,fco->fo", np.fft.rfft(src[0], axis=0), np.fft.rfft(weights, extent, axis=0).conj())
    return np.fft.irfft(spectrum, extent, axis=0)[None, : extent - 2].astype(np.float32)


@pytest.mark.parametrize("function", [winograd, by_fft])
@pytest.mark.parametrize("channels", [1, 4, 16])
def test_what_adds_before_it_multiplies_is_no_tree(function: Callable[..., Array], channels: int) -> None:
    order = revealed(f"FWD_D f32 NXC mb1ic{channels}iw18oc32ow16kw3pw0", function)
    assert order.tree is None
    assert "IMPOSSIBLE" in str(order)


def compensated(terms: Array) -> Array:
    total, lost = np.zeros_like(terms[0]), np.zeros_like(terms[0])
    for term in terms:
        larger = np.abs(total) >= np.abs(term)
        new = total + term
        lost += np.where(larger, (total - new) + term, (term - new) + total)
        total = new
    return total + lost


def exactly(terms: Array) -> Array:
    return np.array([fsum(column) for column in terms.T], np.float32)


@pytest.mark.parametrize("add", [compensated, exactly])
def test_sums_that_lose_nothing_have_no_order(add: Sum) -> None:
    assert "more bits" in of_orders(add).impossible


def test_channels_that_differ() -> None:
    def some_backwards(terms: Array) -> Array:
        return np.append(chain(terms[:, :40]), chain(terms[::-1, 40:]))

    order = of_orders(some_backwards)
    assert (order.channels, order.others) == (40, 8)
    assert "8 others have another order" in str(order)
    by_channel = of_orders(lambda t: np.array([at_random(c, t[:, c]) for c in range(48)]), 40)
    assert "channels do not share an order" in by_channel.impossible


def test_more_than_two_at_once_are_told() -> None:
    said = str(of_orders(partial(at_once, 4)))
    assert "a tree that joins up to 5 at once" in said
    assert "50 x 4 terms at once: 0 .. 199" in said
    assert "more than two at once" in said


def test_answers_that_change() -> None:
    seeds = iter(range(10**6))
    assert "other answers each time" in of_orders(lambda terms: at_random(next(seeds), terms)).impossible


def to_bf16(values: Array) -> Array:
    return values.astype(ml_dtypes.bfloat16).astype(np.float32)


def test_results_of_few_bits_are_counted_in_parts() -> None:
    order = of_orders(lambda terms: to_bf16(cut((300, 300, 100), chain, terms)), 700)
    assert order.blocks == (300, 300, 100)
    assert order.resolution == 256
    assert "counted in parts" in str(order)


def test_partial_sums_of_few_bits_are_counted_in_parts() -> None:
    order = of_orders(lambda terms: sum(to_bf16(chain(part)) for part in np.split(terms, 2)), 700)
    assert (order.blocks, order.accumulation) == ((350, 350), None)
    assert "rounded in another way" in str(order)


def test_sums_in_few_bits() -> None:
    def short(terms: Array) -> Array:
        total = np.zeros(terms.shape[1], np.float32)
        for term in terms:
            total = to_bf16(total + term)
        return total

    order = revealed("BWD_W bf16 NXC mb1ic1iw100oc48ow100kw1pw0", weights_by(short), dtype="f32")
    assert (order.name, order.accumulation) == ("one chain", BF16)
    assert str(order).endswith("declare --height 100 --accumulation bf16")


def test_what_is_not_the_operator_is_told() -> None:
    assert "do not have the sum" in of_orders(lambda terms: chain(terms[1:])).impossible
    with pytest.raises(UnsupportedError, match="the function raised ZeroDivisionError"):
        of_orders(lambda terms: terms / (1 // 0))
    with pytest.raises(UnsupportedError, match="needs sums"):
        probe(convgrad.run, "BiasAdd", (1, 4, 2), (2,))


def test_what_is_revealed_is_declared() -> None:
    """Our result passes as what the probe says of it, and two terms exchanged in size do not."""
    order = revealed(OURS[0])
    rng = np.random.default_rng(0)
    src, diff_dst = (rng.standard_normal((1, 24, 24, c), np.float32) for c in (4, 40))
    call: dict[str, Any] = {"strides": [1, 1], "dilations": [1, 1], "weights_shape": [1, 1, 4, 40]}
    got = convgrad.run("ConvolutionBackwardWeights", src, diff_dst, **call)
    assert check("ConvolutionBackwardWeights", got, src, diff_dst, height=order.declared, **call).outcome != "wrong"


@pytest.mark.long
def test_torch_adds_as_is_revealed() -> None:
    """On each number of threads the tree gives PyTorch's bits on random terms, whatever PyTorch does."""
    torch = pytest.importorskip("torch")

    def weights(operator: str, src: Array, diff_dst: Array, shape: tuple[int, ...], **attributes: Any) -> object:
        pads = attributes["pads_begin"]
        return torch.nn.grad.conv2d_weight(torch.from_numpy(src), shape, torch.from_numpy(diff_dst), padding=pads)

    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            for line in ("BWD_W f32 NCX mb8ic64ih14oc64oh14kh1ph0", "BWD_W f32 NCX mb1ic64ih24oc64oh24kh3ph1"):
                assert revealed(line, weights).accumulation is F32
    finally:
        torch.set_num_threads(before)
