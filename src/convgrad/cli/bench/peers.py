"""The table of peers, the libraries that convgrad is compared with. Each library is imported on first use."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType

from convgrad.cli.bench.work import Contender, Work
from convgrad.errors import UnsupportedError
from convgrad.host import staying_on

Contenders = Callable[[Work, int], list[Contender]]


@dataclass(frozen=True)
class Peer:
    """One peer: its Python packages, the layouts in which it is timed, and the module of convgrad that calls it.

    ``environment`` has environment variables, which are set before the import unless the user has set them. {threads}
    stands for the number of threads.
    """

    name: str
    layouts: tuple[str, ...]
    packages: tuple[str, ...]
    module: str
    environment: tuple[tuple[str, str], ...] = ()


PEERS: Mapping[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer(
            "torch",
            ("nchw", "nhwc"),
            ("torch",),
            "convgrad.cli.bench.torch_peer",
            # If threads are not pinned, two spinning threads may share a core for seconds while another core is idle. A
            # call then takes 28 ms instead of 1 ms.
            (("OMP_PROC_BIND", "true"), ("OMP_PLACES", "cores")),
        ),
        # NPROC sets the size of XLA's thread pools.
        Peer("jax", ("nhwc",), ("jax", "jaxlib"), "convgrad.cli.bench.jax_peer", (("NPROC", "{threads}"),)),
    )
}


def find_peers(names: Sequence[str]) -> tuple[Peer, ...]:
    """Return the peers with these names. Raise UnsupportedError if a peer is unknown or not installed."""
    unknown = [name for name in names if name not in PEERS]
    if unknown:
        raise UnsupportedError(f"peers must be among {', '.join(PEERS)}; got {', '.join(unknown)}")
    peers = tuple(PEERS[name] for name in dict.fromkeys(names))
    for peer in peers:
        if importlib.util.find_spec(peer.packages[0]) is None:
            raise UnsupportedError(f"{peer.name} is not installed: pip install {' '.join(peer.packages)}")
    return peers


def load(peer: Peer, threads: int) -> ModuleType:
    """Return the module of convgrad that calls the peer, after the peer's environment variables are set."""
    for name, value in peer.environment:
        os.environ.setdefault(name, value.format(threads=threads))
    with staying_on(()):  # an import may pin this thread
        return importlib.import_module(peer.module)


def contenders(peer: Peer, work: Work, threads: int) -> list[Contender]:
    """Return the peer's contenders for a case, one per layout, in the order of ``peer.layouts``."""
    with staying_on(()):
        make: Contenders = load(peer, threads).contenders
        return make(work, threads)
