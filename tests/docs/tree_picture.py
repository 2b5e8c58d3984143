"""The reduction tree of a sum of 40 chains, drawn from the specified order: python -m tests.docs.tree_picture."""

from __future__ import annotations

from convgrad.notation import problem
from convgrad.spec.order import BLOCK, FAN_IN, order_of
from tests.docs.svg import CELL, DARK, INK, LINE, QUIET, TAPS, cell, line, picture, words
from tests.support.places import DOCS

PICTURE = DOCS / "pictures" / "reduction_tree.svg"
EXAMPLE = "BWD_W f32 NXC mb40ic4ih16oc4oh16kh1ph0"  # an image has as many positions as a chain has terms
LEFT, STEP, LEAF = 8, 9.6, 24  # the first leaf, from leaf to leaf, and a leaf's height


def chain(y: float) -> list[str]:
    """Draw one chain: multiply-adds from +0, one after the other."""
    parts = [words(LEFT, y, f"One chain: at most {BLOCK} terms, in order", "start", size=14, bold=True)]
    texts = ["+0", "a₀·b₀", "a₁·b₁", "…", "a₂₅₅·b₂₅₅", "sum"]
    widths = [34, 52, 52, 30, 80, 44]
    x, top = float(LEFT), y + 18
    for at, (text, width) in enumerate(zip(texts, widths, strict=True)):
        last = at == len(texts) - 1
        parts += [cell(x, top, text, TAPS[0] if last else "#ffffff", width, thick=last, size=14)]
        if not last:
            parts += [line(x + width + 1, top + CELL / 2, x + width + 16, top + CELL / 2, INK, 1.5, arrow=True)]
        x += width + 18
    return parts


def drawing() -> str:
    """Return the picture: chains, nodes of up to 16 chains, and the root."""
    order = order_of(problem(EXAMPLE))
    chains, nodes = order.blocks, -(-order.blocks // FAN_IN)
    parts = chain(16)
    y = 104
    parts += [words(LEFT, y, f"{chains} chains, here one per image", "start", size=14, bold=True)]
    top, middle = y + 38, y + 150
    root = middle + CELL + 62
    centre = LEFT + chains * STEP / 2
    for node in range(nodes):
        first, last = node * FAN_IN, min(chains, (node + 1) * FAN_IN)
        x = LEFT + (first + last) / 2 * STEP
        parts += [words(x, top - 14, f"{first} to {last - 1}", ink=DARK[node], size=14)]
        for leaf in range(first, last):
            at = LEFT + (leaf + 0.5) * STEP
            parts += [line(at, top + LEAF, x, middle - 1, LINE, 1)]
            box = f'x="{at - 4:g}" y="{top}" width="8" height="{LEAF}" fill="{TAPS[node]}" stroke="{DARK[node]}"'
            parts += [f"<rect {box}/>"]
        parts += [line(x, middle + CELL, centre, root - 1, LINE, 1.5)]
        parts += [cell(x - 37, middle, f"sum of {last - first}", TAPS[node], 74, size=13)]
    parts += [words(LEFT, root + 14, f"{nodes} nodes, each the", "start", size=13, ink=QUIET)]
    parts += [words(LEFT, root + 31, f"sum of up to {FAN_IN}", "start", size=13, ink=QUIET)]
    parts += [cell(centre - 60, root, f"root: sum of {nodes}", width=120, thick=True, size=14)]
    parts += [line(centre + 61, root + CELL / 2, centre + 84, root + CELL / 2, INK, 1.5, arrow=True)]
    parts += [words(centre + 90, root + CELL / 2, "one gradient", "start", size=14)]
    below = root + CELL + 24
    sums = f"{BLOCK} + {FAN_IN - 1} + {nodes - 1}"
    parts += [words(LEFT, below, f"A term is rounded at most {sums} = {order.height} times,", "start", size=14)]
    parts += [words(LEFT, below + 20, f"not {order.terms:,} times as in one chain.", "start", size=14)]
    return picture("The reduction tree of a sum of 40 chains", below + 40, parts)


if __name__ == "__main__":
    PICTURE.write_text(drawing(), encoding="utf-8")
