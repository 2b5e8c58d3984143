"""The audit of a training step: its operators by group, with the modules and lines that call them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch.utils._pytree import tree_leaves

from convgrad.errors import InvalidDataTypeError
from convgrad.torch.training.context import passing
from convgrad.torch.training.fixed import ARITHMETIC
from convgrad.torch.training.groups import FIXED_GROUP, OURS, VARIES, cure_of, group_of, rows
from convgrad.torch.training.replacements import is_active
from convgrad.torch.training.row import PASS
from convgrad.torch.training.watch import Watcher
from convgrad.words import counted

_TITLES = {
    VARIES: "may vary with threads, instruction set or memory format",
    OURS: "computed by convgrad, in one order",
    FIXED_GROUP: "never vary: they add nothing, or in a fixed order",
}
_COMPUTED_BY_PYTORCH = "may vary here, because PyTorch computed them outside same_bits()"
_PLACES = 3  # max places in a line
_OUTSIDE = "Use convgrad.torch.same_bits()"
_OWN = "convgrad::"  # the begin of the names of convgrad's own operators


@dataclass(frozen=True)
class Audit:
    """The operators of a step by name. ``print(audit)`` shows them in three groups.

    Each value counts the places of an operator, such as ``"layer1.0.bn1, train.py:12"``. The audit is false if an
    operator may vary, so ``assert audit(step)`` works.

    Args:
        varying: Operators whose bits may depend on threads, instruction set or memory format. Default: {}.
        ours: Operators that convgrad computes in one specified order, inside ``same_bits()``. Default: {}.
        fixed: Operators that never vary. Default: {}.
        inside: Whether the step ran inside ``same_bits()``. Default: False.
    """

    varying: Mapping[str, Counter[str]] = field(default_factory=dict)
    ours: Mapping[str, Counter[str]] = field(default_factory=dict)
    fixed: Mapping[str, Counter[str]] = field(default_factory=dict)
    inside: bool = False

    def __bool__(self) -> bool:
        """Return whether no operator may vary, in the block in which the step ran."""
        return not self.varying and not self._replaceable

    def __str__(self) -> str:
        """Return the table as text."""
        replaceable = self._replaceable
        ours = {name: places for name, places in self.ours.items() if name not in replaceable}
        groups = {_TITLES[VARIES]: self.varying, _COMPUTED_BY_PYTORCH: replaceable, _TITLES[OURS]: ours}
        groups[_TITLES[FIXED_GROUP]] = self.fixed
        always = groups.keys() - {_COMPUTED_BY_PYTORCH if self.inside else _TITLES[OURS]}
        lines = []
        for title, operators in groups.items():
            if operators or title in always:
                calls = sum(places.total() for places in operators.values())
                lines.append(f"{title}: {counted(len(operators), 'operator')}, {counted(calls, 'call')}")
            lines += [] if operators is self.fixed else self._operators(operators)
        return "\n".join(lines)

    @property
    def _replaceable(self) -> Mapping[str, Counter[str]]:
        """The operators that PyTorch computed outside ``same_bits()``; convgrad computes its own everywhere."""
        return {} if self.inside else {name: at for name, at in self.ours.items() if not name.startswith(_OWN)}

    def cures(self) -> Iterator[str]:
        """Yield a line for each operator that varies in the block in which the step ran, with what to do about it."""
        yield from self._operators({**self.varying, **self._replaceable})

    def _operators(self, operators: Mapping[str, Counter[str]]) -> Iterator[str]:
        for name, places in sorted(operators.items(), key=lambda pair: -pair[1].total()):
            shown = [place for place, _ in places.most_common(_PLACES)]
            cure = self._cure(name)
            line = f"  {places.total()} {name}: {'; '.join(shown)}{'; ...' if len(places) > _PLACES else ''}"
            yield f"{line}. {cure}." if cure else line

    def _cure(self, name: str) -> str:
        """Return what the user can do about an operator; "" if nothing need be done."""
        if name in self.varying:
            return cure_of(name)
        return _OUTSIDE if name in self._replaceable else ""


def audit(step: Callable[[], object]) -> Audit:
    """Run a training step, and return its operators in three groups. Read the result with ``print``.

    An operator that convgrad does not know is in the group of those that may vary, so the audit passes nothing over.
    Inside ``same_bits()``, the step runs to its end even if an operator may vary.

    Args:
        step: A function without arguments that runs the forward pass, the loss, the backward pass and the optimizer.

    Returns:
        An `Audit`. It is true if no bit of the step may vary.

    Raises:
        InvalidDataTypeError: ``step`` cannot be called.

    >>> import convgrad.torch as ct
    >>> x = torch.ones(3, requires_grad=True)
    >>> with ct.same_bits():
    ...     print(ct.audit(lambda: torch.lgamma(x).sum()))  # doctest: +ELLIPSIS
    may vary with threads, instruction set or memory format: 1 operator, 1 call
      1 aten::lgamma: <doctest ... Use another operator, because convgrad has no definition of this one.
    computed by convgrad, in one order: 1 operator, 1 call
      1 aten::sum: <doctest ...
    never vary: they add nothing, or in a fixed order: 0 operators, 0 calls
    """
    if not callable(step):
        raise InvalidDataTypeError(f"audit: step must be a function without arguments; got {type(step).__name__}")
    groups: dict[str, dict[str, Counter[str]]] = {group: {} for group in _FIELDS.values()}

    def see(name: str, place: str, results: object, arguments: object) -> None:
        group = VARIES if passed else _group_of_call(name, arguments)  # rows serve only some arguments
        groups[group].setdefault(name, Counter())[place] += 1
        passed.clear()

    with passing() as passed, Watcher(see):
        step()
    return Audit(**{name: groups[group] for name, group in _FIELDS.items()}, inside=is_active())


_FIELDS = {"varying": VARIES, "ours": OURS, "fixed": FIXED_GROUP}
_NO_ROW = None, ""


def _group_of_call(name: str, arguments: object) -> str:
    """Return the group of a call: a row serves only its types, dense tensors, and CPUs."""
    group = group_of(name)
    leaves = tree_leaves(arguments)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    dtypes = [leaf.dtype for leaf in tensors] + [leaf for leaf in leaves if isinstance(leaf, torch.dtype)]
    row, _ = rows().get(name.removeprefix("aten::"), _NO_ROW) if group == OURS else _NO_ROW
    if group != FIXED_GROUP and any(
        tensor.layout != torch.strided or tensor.device.type != "cpu" for tensor in tensors
    ):
        return VARIES if not name.startswith(_OWN) else group
    floats = [tensor for tensor in tensors if (tensor.is_floating_point() and tensor.dim()) or tensor.is_complex()]
    if row is not None and any(tensor.dtype not in row.types for tensor in floats):
        return VARIES
    if row is not None and row.integers == PASS and not any(dtype.is_floating_point for dtype in dtypes):
        return FIXED_GROUP  # sums of integers are exact
    packet = name.removeprefix("aten::").partition(".")[0].removesuffix("_")
    if group == FIXED_GROUP and packet in ARITHMETIC and any(tensor.is_complex() for tensor in tensors):
        return VARIES
    return OURS if name.startswith(_OWN) else group
