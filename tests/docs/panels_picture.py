"""The packed panels of a GEMM micro-kernel: python -m tests.docs.panels_picture."""

from __future__ import annotations

from tests.docs.svg import CELL, DARK, EMPTY, INK, LINE, PLAIN, QUIET, TAPS, line, picture, words
from tests.support.places import DOCS

PICTURE = DOCS / "pictures" / "panels.svg"
ROWS, VECTORS, LANES = 12, 2, 16  # MR, NR, f32 of a register: the layer of docs/design/engine.md with AVX-512
TAPS_OF, CHANNELS, BYTES = 9, 256, 4
LABELS = ("tap 0, c 0", "c 1", "…", "c 255", "tap 1, c 0", "…")
TAKEN = 1  # the k that is multiplied
LANE, STEP, ROW = 6.5, 24, 15  # pixels: of a lane, of a k, of a row of A
X, Y = 182, 66  # the corner of B
WIDE = VECTORS * LANES * LANE


def box(x: float, y: float, width: float, height: float, fill: str) -> str:
    """Return a rectangle; its upper left corner is (x, y)."""
    place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
    return f'<rect {place} fill="{fill}" stroke="{LINE}"/>'


def panel_of_b() -> list[str]:
    """B, row by row: a row is contiguous."""
    parts = [words(X, 16, "B: packed, rows contiguous", "start", size=13, bold=True)]
    for at, text in enumerate(LABELS):
        y = Y + at * STEP
        taken = at == TAKEN
        parts += [words(X - 10, y + STEP / 2, text, "end", size=13, ink=DARK[1] if taken else INK, bold=taken)]
        for vector in range(VECTORS):
            x = X + vector * LANES * LANE
            parts += [box(x, y, LANES * LANE, STEP, EMPTY if text == "…" else TAPS[1] if taken else PLAIN)]
            if text != "…":
                ticks = [x + lane * LANE for lane in range(1, LANES)]
                parts += [line(tick, y + 5, tick, y + STEP - 5, LINE, 0.5) for tick in ticks]
    names = ("column 0", "start"), (f"column {VECTORS * LANES - 1}", "end")
    for (text, anchor), x in zip(names, (X, X + WIDE), strict=True):
        parts += [words(x, Y - 12, text, anchor, size=13, ink=QUIET)]
    return parts


def drawing() -> str:
    """Return the picture: B on the right, A below on the left, and the sums in registers between them."""
    parts = panel_of_b()
    size = TAPS_OF * CHANNELS * VECTORS * LANES * BYTES // 1024
    parts += [words(8, Y - 34, f"{TAPS_OF} x {CHANNELS} rows", "start", size=13, ink=QUIET)]
    parts += [words(8, Y - 17, f"= {size} KiB", "start", size=13, ink=QUIET)]
    below = Y + len(LABELS) * STEP
    top = below + 74
    middle = X + WIDE / 2
    parts += [line(middle, below + 6, middle, top - 34, DARK[1], 2, arrow=True)]
    parts += [words(middle + 12, below + 20, f"{VECTORS} loads", "start", size=13, ink=DARK[1], bold=True)]
    parts += [words(X, top - 18, f"sums: {ROWS} x {VECTORS} registers", "start", size=13, bold=True)]
    left, wide = 8, 20
    parts += [words(left, top - 36, "A: channels of src,", "start", size=13, bold=True)]
    parts += [words(left, top - 18, "contiguous", "start", size=13, bold=True)]
    for row in range(ROWS):
        y = top + row * ROW
        for at in range(len(LABELS) - 1):
            fill = TAPS[0] if at == TAKEN else EMPTY if LABELS[at] == "…" else PLAIN
            parts += [box(left + at * wide, y, wide, ROW, fill)]
        parts += [box(X + vector * LANES * LANE, y, LANES * LANE, ROW, TAPS[2]) for vector in range(VECTORS)]
    end = left + (len(LABELS) - 1) * wide
    across = top + ROWS * ROW / 2
    parts += [line(end + 6, across, X - 8, across, DARK[0], 2, arrow=True)]
    foot = top + ROWS * ROW
    parts += [words(left, foot + 16, f"{ROWS} positions", "start", size=13, ink=QUIET)]
    parts += [words(end + 8, foot + 16, f"{ROWS} broadcasts", "start", size=13, ink=DARK[0], bold=True)]
    parts += [words(left, foot + 40, f"For each k: {ROWS * VECTORS} fused multiply-adds", "start", size=14)]
    return picture("Panels of A and B, and the sums of one micro-tile", foot + CELL + 16, parts)


if __name__ == "__main__":
    PICTURE.write_text(drawing(), encoding="utf-8")
