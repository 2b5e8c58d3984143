"""Weight gradients over up to a thousand workers: the plan on paper beside simulated schedules, no worker needed.

python benchmarks/thousand_workers.py -o thousand_workers.csv

Of each layer and number of workers two cuts are planned: the best of those at nodes of the tree, and pieces of a round
number of leaves, as chunks often have. Each is simulated as on paper; with latencies of a heavy tail and slow workers;
and with workers that die, too. Figures of noise are medians of the seeds. Nothing is measured: the same figures come
out everywhere. A simulated sum that is not the specified tree ends the program.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from statistics import median
from typing import Any

from rows import asked, write_rows
from simulated import QUIET, Noise, Outcome, Simulation, specified

from convgrad.notation import problem
from convgrad.plan.machine import ISAS, Machine
from convgrad.scale.costs import Costs, Network, Worker, costs
from convgrad.scale.shares import leaves_of

LAYERS = {
    "resnet50:5_3x3": "BWD_W f32 NXC mb1000000ic512ih7oc512oh7kh3ph1",
    "resnet50:2_3x3": "BWD_W f32 NXC mb1000000ic64ih56oc64oh56kh3ph1",
    "unet_level1": "BWD_W f32 NXC mb10000ic32id64ih64iw64oc32od64oh64ow64kd3kh3kw3pd1ph1pw1",
}
WORKERS = (1, 10, 100, 1000)
SEEDS = 5
# Ten gigabits a second, a millisecond until what a task needs begins to come, a scheduler of 5000 tasks a second
NETWORK = Network(latency_s=1e-3, bytes_per_s=1.25e9, task_s=2e-4)
# 16 cores, 1 GB/s from a store that gives 200 GB/s in all, 16 GB of memory
WORKER = Worker.of(Machine(ISAS["avx512"]), 16, read_bytes_per_s=1e9, store_bytes_per_s=200e9, memory_bytes=16e9)
TAIL, SLOW, SLOWER = 1.5, 0.05, 4.0  # a latency is 3 times as long on average, one in 20 workers 4 times as slow


def elsewhere(leaves: int) -> int:
    """Return the largest of 1, 2, 5, 10, 20, ... that is not larger.

    >>> [elsewhere(leaves) for leaves in (1, 8, 256, 2048)]
    [1, 5, 200, 2000]
    """
    power: int = 10 ** (len(str(leaves)) - 1)
    return max(times * power for times in (1, 2, 5) if times * power <= leaves)


def noises(workers: int, seeds: int) -> Iterator[tuple[str, list[Noise]]]:
    """Yield what may go otherwise, by name, each with so many seeds."""
    deaths = {"noisy": 0, "dying": max(1, workers // 100) if workers > 1 else 0}
    for name, dead in deaths.items():
        yield name, [Noise(TAIL, SLOW, SLOWER, dead, seed) for seed in range(seeds)]


def simulated(plan: Costs, noise: Noise) -> Outcome:
    """Return what a schedule comes to, whose sum is the tree that is specified."""
    outcome = Simulation(plan, NETWORK, WORKER, noise).run()
    if outcome.value != specified(leaves_of(plan.problem)):
        raise AssertionError(f"another tree: {plan.problem} over {plan.workers} workers with {noise}")
    return outcome


def row(layer: str, cut: str, plan: Costs, seeds: int) -> dict[str, Any]:
    """Return the figures of a cut."""
    found: dict[str, Any] = {
        "layer": layer, "workers": plan.workers, "cut": cut, "piece_leaves": len(plan.pieces[0].leaves),
        "pieces": len(plan.pieces), "sums": plan.arrays, "depth": len(plan.levels),
        "read_bytes": plan.read_bytes, "moved_bytes": sum(plan.moved_bytes),
    }  # fmt: skip
    times = {f"{name}_s": value for name, value in plan.bounds.items()} | {"time_s": plan.time_s, "most_s": plan.most_s}
    times["quiet_s"] = simulated(plan, QUIET).makespan_s
    for name, each in noises(plan.workers, seeds):
        outcomes = [simulated(plan, noise) for noise in each]
        times[f"{name}_s"] = median(outcome.makespan_s for outcome in outcomes)
        found[f"{name}_moved_bytes"] = int(median(outcome.moved_bytes for outcome in outcomes))
        found[f"{name}_tasks"] = int(median(outcome.tasks for outcome in outcomes))
    tasks = len(plan.pieces) + sum(map(len, plan.levels))
    return found | {"tasks": tasks, "binds": plan.binds} | {name: f"{value:.4g}" for name, value in times.items()}


def rows(layer: str, line: str, workers: int, seeds: int) -> list[dict[str, Any]]:
    """Return the rows of a layer over so many workers."""
    one = problem(line)
    best = costs(one, workers, NETWORK, WORKER)
    round_number = costs(one, workers, NETWORK, WORKER, elsewhere(len(best.pieces[0].leaves)))
    return [row(layer, cut, plan, seeds) for cut, plan in (("nodes", best), ("round", round_number))]


def main() -> None:
    """Print the figures; write them as CSV where asked."""
    parser = argparse.ArgumentParser(description="Plan and simulate weight gradients over up to a thousand workers.")
    parser.add_argument("--layers", nargs="*", default=[*LAYERS], choices=[*LAYERS])
    parser.add_argument("--workers", type=int, nargs="*", default=WORKERS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    options = asked(parser)
    found = []
    for layer in options.layers:
        for workers in options.workers:
            for each in rows(layer, LAYERS[layer], workers, options.seeds):
                print(" ".join(str(value) for value in each.values()), flush=True)
                found.append(each)
    if options.output:
        write_rows(options.output, found)


if __name__ == "__main__":
    main()
