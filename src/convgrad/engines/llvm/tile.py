"""The tile: one block of terms of an outer product of channels, summed in registers and joined into a partial sum."""

from __future__ import annotations

from convgrad.engines.llvm.emit import Function, Module, Value
from convgrad.plan.recipe import IN_PLACE, KernelSpec

F32_BYTES = 4
RUN_BYTES = 32  # x offset, y offset, first position, end position
AHEAD = 8  # positions that the vector stream is asked for ahead: worth 0.80 to 0.87 of peak


def tile(module: Module, spec: KernelSpec, vectors: int) -> None:
    """Emit ``tile<vectors>``: acc[r][v] = sum over images, runs, positions of x[r] * y[v], then join into ``partial``.

    A run is a stretch of destination positions in a row; the tap's range ``low`` to ``high`` cuts it to those that
    exist. Runs hold byte offsets of x and y at position 0, so that a tap is just another offset of x and y.
    """
    rows, lanes = spec.tile.rows, spec.isa.lanes
    vector = f"<{lanes} x float>"
    f = module.function(
        f"tile{vectors}",
        partial="ptr", first="i1", x="ptr", y="ptr", images="i64", x_image="i64", y_image="i64",
        runs="ptr", run_count="i64", low="i64", high="i64", x_step="i64", y_step="i64", x_next="i64",
    )  # fmt: skip
    names = [f"sum{r}_{v}" for r in range(rows) for v in range(vectors)]
    sums = {name: f.zeros(vector) for name in names}
    with f.loop(f.images, x=f.x, y=f.y, **sums) as image:
        with f.loop(f.run_count, run=f.runs, **_of(image, names)) as run:
            begin = f.most(f.load("i64", run.run, 16), f.low)
            count = f.least(f.load("i64", run.run, 24), f.high) - begin
            x = f.at(image.x, f.load("i64", run.run) + begin * f.x_step)
            y = f.at(image.y, f.load("i64", run.run, 8) + begin * f.y_step)
            with f.loop(count, x=x, y=y, **_of(run, names)) as position:
                _position(f, spec, position.x, position.y, vectors, position)
                position.next(x=f.at(position.x, f.x_step), y=f.at(position.y, f.y_step))
            run.next(run=f.at(run.run, RUN_BYTES), **_of(position, names))
        image.next(x=f.at(image.x, f.x_image), y=f.at(image.y, f.y_image), **_of(run, names))
    _join(f, spec, vectors, [image.carried[n] for n in names])
    f.done()


def _of(loop: object, names: list[str]) -> dict[str, Value]:
    return {name: getattr(loop, name) for name in names}


def _position(f: Function, spec: KernelSpec, x: Value, y: Value, vectors: int, loop: object) -> None:
    lanes = spec.isa.lanes
    columns = [f.load(f"<{lanes} x float>", y, v * lanes * F32_BYTES) for v in range(vectors)]
    for line in range(0, vectors * lanes * F32_BYTES, 64):
        f.prefetch(f.at(y, f.y_step * AHEAD + line))
    if spec.row_layout == IN_PLACE:
        f.prefetch(f.at(x, f.x_step * AHEAD))
        f.prefetch(f.at(x, f.x_next), locality=2)  # what the next chunk will read here
    for r in range(spec.tile.rows):
        row = f.splat(f.load("float", x, r * F32_BYTES), lanes)
        for v in range(vectors):
            name = f"sum{r}_{v}"
            loop.next(**{name: f.fma(row, columns[v], getattr(loop, name))})  # type: ignore[attr-defined]


def _join(f: Function, spec: KernelSpec, vectors: int, sums: list[Value]) -> None:
    """The first child of a parent is stored, a later one added: parent + child, left to right."""
    places = [
        (r * spec.tile.vectors + v) * spec.isa.lanes * F32_BYTES for r in range(spec.tile.rows) for v in range(vectors)
    ]
    with f.when(f.first):
        for value, place in zip(sums, places, strict=True):
            f.store(value, f.partial, place)
    with f.otherwise():
        for value, place in zip(sums, places, strict=True):
            f.store(f.add(f.load(value.type, f.partial, place), value), f.partial, place)


def carry(module: Module, spec: KernelSpec) -> None:
    """Emit ``carry``: join one level's partial sums, of a whole tile, into the level above."""
    kind, step = f"<{spec.isa.lanes} x float>", spec.isa.lanes * F32_BYTES
    f = module.function("carry", child="ptr", parent="ptr", first="i1")
    with f.loop(spec.tile.rows * spec.tile.vectors, child=f.child, parent=f.parent) as loop:
        child = f.load(kind, loop.child)
        with f.when(f.first):
            f.store(child, loop.parent)
        with f.otherwise():
            f.store(f.add(f.load(kind, loop.parent), child), loop.parent)
        loop.next(child=f.at(loop.child, step), parent=f.at(loop.parent, step))
    f.done()
