"""examples/resnet18_reproducible.py: one fingerprint for any threads and instruction set of this library."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.places import EXAMPLES

torch = pytest.importorskip("torch")

import convgrad.torch  # noqa: E402
from convgrad.engines.llvm.isas import host_isas  # noqa: E402
from tests.support.tiers import tiers  # noqa: E402

COUNTS = ("1", "2", "3", "1")
HOST = [one.name for one in host_isas()]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The example as a module, with PyTorch held to one thread."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield __import__("resnet18_reproducible")
    torch.set_num_threads(before)


def test_its_convolutions_are_ours(example: Any) -> None:
    report = convgrad.torch.report(convgrad.torch.reproducible(example.ResNet18(4)))
    assert (len(report.reproducible), report.left_out, report.unknown) == (20, {}, {})
    assert {name: on for name, (_, on) in report.varying.items() if "bn" not in name and "downsample" not in name} == {
        "avgpool": {"memory format"},
        "fc": {"threads"},
    }


@tiers("isas", [[*dict.fromkeys((HOST[0], HOST[-1])), HOST[0]]], long=[[*HOST, HOST[0]]])
def test_a_block_has_one_fingerprint(isas: list[str], example: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {}
    for count, isa in enumerate(isas, 1):
        monkeypatch.setenv("CONVGRAD_MAX_ISA", isa)
        monkeypatch.setenv("CONVGRAD_NUM_THREADS", str(count))
        torch.manual_seed(0)
        block = convgrad.torch.reproducible(example.BasicBlock(24, 40, 2))
        given = torch.randn(6, 24, 17, 17, requires_grad=True)
        block(given).square().sum().backward()
        with torch.no_grad():
            for parameter in block.parameters():
                parameter.sub_(parameter.grad)
        found[isa, count] = convgrad.torch.fingerprint({"input": given.grad, **block.state_dict()})
    assert len(found) == len(isas)
    assert len(set(found.values())) == 1, found


@pytest.mark.long
def test_the_example_prints_one_fingerprint() -> None:
    printed = set()
    for isa in HOST:
        for count in COUNTS:
            environment = {**os.environ, "CONVGRAD_NUM_THREADS": count, "CONVGRAD_MAX_ISA": isa}
            command = [sys.executable, str(EXAMPLES / "resnet18_reproducible.py")]
            run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            printed.add(run.stdout)
    (words,) = printed
    assert [line.split()[0] for line in words.splitlines()[-3:]] == ["before", "losses", "after"]
    plain = subprocess.run([*command, "--plain"], capture_output=True, text=True, check=True).stdout
    assert words.splitlines()[-3] == plain.splitlines()[-3]  # they began with the same weights
    assert words.splitlines()[-1] != plain.splitlines()[-1]
