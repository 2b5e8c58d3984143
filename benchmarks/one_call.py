"""One call on operands that lie in files, or their reading alone, by a process that ``larger_than_memory.py`` watches.

python benchmarks/one_call.py '{"problem": "weights, images", "size": 1000000000, "folder": ..., "how": "read", ...}'

Prints as its last line what it found. ``limit``, of what RLIMIT_DATA counts, is set before anything is loaded.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

BUFFER = 1 << 24


def in_pieces(job: dict[str, Any]) -> dict[str, Any]:
    """Compute piece by piece, from maps of files, or from zarr arrays, and into a file where the result is large."""
    import numpy as np  # noqa: PLC0415 - after the limit, as all that a process loads

    from convgrad import scale  # noqa: PLC0415

    problem, folder = on_disk.PROBLEMS[job["problem"]](job["size"]), Path(job["folder"])
    operands = on_disk.opened(problem, folder, job["stored"]).values()
    options = problem.attributes | {"memory": job["memory"], "threads": job["threads"]}
    target = folder / "result.npy"
    out = problem.out and np.lib.format.open_memmap(target, "w+", np.float32, problem.out)
    plan, told = scale.plan(problem.operator, *operands, out=out, **options), []

    def progress(now: Any) -> None:
        told.append(now)
        if job["shown"] and now.done * 10 // now.pieces != (now.done - 1) * 10 // now.pieces:
            print(f"  {now}", file=sys.stderr, flush=True)

    before = watched.held()
    begin = time.perf_counter()
    try:
        result = scale.run(problem.operator, *operands, out=out, progress=progress, **options)
        seconds = time.perf_counter() - begin
        if out is not None:
            out.flush()
        on_disk_s = time.perf_counter() - begin
        digest = hashed(result)
    finally:
        target.unlink(missing_ok=True)
    last = told[-1]
    return {
        "seconds": seconds, "on_disk_s": on_disk_s, "sha256": digest, "before": before,
        "pieces": last.pieces, "waiting_s": last.waiting_s, "read_bytes": last.read_bytes,
        "again_bytes": plan.twice_bytes, "planned_bytes": plan.peak_bytes,
    }  # fmt: skip


def whole(job: dict[str, Any]) -> dict[str, Any]:
    """Load the operands whole and make the plain call."""
    import numpy as np  # noqa: PLC0415

    import convgrad  # noqa: PLC0415

    problem = on_disk.PROBLEMS[job["problem"]](job["size"])
    before, begin = watched.held(), time.perf_counter()
    operands = [np.array(operand) for operand in on_disk.opened(problem, Path(job["folder"])).values()]
    loaded = time.perf_counter()
    result = convgrad.run(problem.operator, *operands, threads=job["threads"], **problem.attributes)
    end = time.perf_counter()
    return {
        "seconds": end - begin, "computing_s": end - loaded, "sha256": hashed(result),
        "before": before, "read_bytes": problem.nbytes,
    }  # fmt: skip


def reader(job: dict[str, Any]) -> dict[str, Any]:
    """Read all pieces of a call as it does, and compute nothing."""
    from convgrad.scale.call import ScaleOptions, called  # noqa: PLC0415
    from convgrad.scale.checkpoint import State  # noqa: PLC0415
    from convgrad.scale.prefetch import Waited  # noqa: PLC0415

    problem = on_disk.PROBLEMS[job["problem"]](job["size"])
    operands = on_disk.opened(problem, Path(job["folder"]), job["stored"]).values()
    before, number = watched.held(), 0
    options = ScaleOptions(job["memory"], threads=job["threads"])
    call = called(problem.operator, tuple(operands), problem.attributes, options, to_run=True)
    begin = time.perf_counter()
    with call.pieces(State(), Waited()) as slots:
        for slot in slots:
            number += slot.read_bytes
    return {"seconds": time.perf_counter() - begin, "read_bytes": number, "before": before}


def read(job: dict[str, Any]) -> dict[str, Any]:
    """Read the files from end to end, into one buffer."""
    problem = on_disk.PROBLEMS[job["problem"]](job["size"])
    before, buffer, number, begin = watched.held(), bytearray(BUFFER), 0, time.perf_counter()
    for name in problem.files:
        path = on_disk.path_of(Path(job["folder"]), name, problem.operands[name])
        with path.open("rb", buffering=0) as file:
            while some := file.readinto(buffer):
                number += some
    return {"seconds": time.perf_counter() - begin, "read_bytes": number, "before": before}


def hashed(result: Any) -> str:
    """Return the SHA-256 of an array's bytes, which may lie in a file."""
    flat, digest = result.reshape(-1).view("u1"), sha256()
    for at in range(0, flat.size, BUFFER):
        digest.update(flat[at : at + BUFFER])
    return digest.hexdigest()


HOW = {"in pieces": in_pieces, "whole": whole, "read": read, "reader": reader}

if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    if asked["limit"]:
        resource.setrlimit(resource.RLIMIT_DATA, (asked["limit"], asked["limit"]))
    import on_disk
    import watched

    print(json.dumps(HOW[asked["how"]](asked)))
