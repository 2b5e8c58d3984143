"""The graph: ops are added, and the finalized graph is cut into partitions or run as a whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from convgrad.array_types import Array
from convgrad.arrays.libraries import like
from convgrad.errors import GraphError
from convgrad.graph.fuse import FusedOps
from convgrad.graph.given import Tensors, by_id
from convgrad.graph.infer import Inference, infer, inputs_of, producers_of, tensors_of
from convgrad.graph.limits import DEFAULT_LIMITS, Limits
from convgrad.graph.model import RELU, LogicalTensor, Op, checked_id, operator_of
from convgrad.graph.partition import Execution, Partition, execute, memory_of, rectify

ENGINE_KINDS = ("any", "cpu", "gpu")
SETTINGS = ("version", "engine_kind", "fpmath_mode", "fpmath_mode_apply_to_int")
FPMATH_MODES = ("strict", "bf16", "f16", "any", "tf32")


@dataclass(frozen=True)
class Outcome:
    """What a run of a graph returns.

    Args:
        results: The results by tensor id, each an array of the same library as the first input of its op.
        skipped: The reason why each skipped op did not run, by op id.
    """

    results: Mapping[int, Any]
    skipped: Mapping[int, str]


@dataclass(frozen=True)
class Header:
    """The settings of a file for the whole graph. Arithmetic is always strict, which every fpmath mode allows.

    Args:
        version: The version of oneDNN that wrote the file. Default: "3.0.0".
        engine_kind: "cpu", "gpu" or "any". Default: "cpu".
        fpmath_mode: "strict", "bf16", "f16", "tf32" or "any". Default: "strict".
        fpmath_mode_apply_to_int: Whether the mode also applies to integers. Default: False.
        others: The settings of a file that this version does not know, as plain values by key. They change nothing, and
            are written back. Default: {}.
    """

    version: str = "3.0.0"
    engine_kind: str = "cpu"
    fpmath_mode: str = "strict"
    fpmath_mode_apply_to_int: bool = False
    others: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        """Check the engine kind, the fpmath mode and the other settings."""
        for name, choices in (("engine_kind", ENGINE_KINDS), ("fpmath_mode", FPMATH_MODES)):
            value = getattr(self, name)
            if value not in choices:
                raise GraphError(f"{name} must be one of {', '.join(choices)}; got {value!r:.80}")
        known = {*SETTINGS, "input_ports", "output_ports", "graph"} & {*self.others}
        if known:
            raise GraphError(f"others must be settings that are not known here; got {min(known)}")
        try:
            json.dumps(dict(self.others), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise GraphError(f"others must be plain values of JSON by key; got {self.others!r:.80}") from error


class Graph:
    """Ops over logical tensors, connected by equal tensor ids.

    Args:
        ops: The ops to add. Default: ().

    Keyword Args:
        outputs: The ids of the tensors that ``run`` returns; None is the results that no op reads. Default: None.
        header: The settings for the whole graph. Default: Header().

    Raises:
        GraphError: An op or the graph is invalid. The message has the op's place if it comes from a file.

    >>> import numpy as np
    >>> src = LogicalTensor(0, "f32", (1, 5, 1), name="src")
    >>> weights = LogicalTensor(1, "f32", (3, 1, 1), name="weights")
    >>> graph = Graph()
    >>> layer = {"strides": [1], "dilations": [1], "auto_pad": "same_upper"}
    >>> graph.add_op(Op(0, "Convolution", (src, weights), (LogicalTensor(2, name="dst"),), layer))
    >>> graph.finalize()
    >>> print(graph.tensors[2])
    2 dst: f32 1x5x1
    >>> ones = {"src": np.ones((1, 5, 1), np.float32), "weights": np.ones((3, 1, 1), np.float32)}
    >>> graph.run(ones).results[2].ravel().tolist()
    [2.0, 3.0, 3.0, 3.0, 2.0]
    """

    def __init__(
        self, ops: Sequence[Op] = (), *, outputs: Sequence[int] | None = None, header: Header = Header()
    ) -> None:
        self.header = header
        self._ops: dict[int, Op] = {}
        self._outputs = None if outputs is None else tuple(checked_id("an output", t) for t in outputs)
        self._inference: Inference | None = None
        for op in ops:
            self.add_op(op)

    @property
    def ops(self) -> tuple[Op, ...]:
        """The ops, in the order in which they were added."""
        return tuple(self._ops.values())

    @property
    def is_finalized(self) -> bool:
        """Whether the graph is finalized: it is checked, and no op can be added."""
        return self._inference is not None

    def add_op(self, op: Op) -> None:
        """Add an op; its inputs and outputs connect to tensors of equal ids.

        Args:
            op: The op, whose id no other op of the graph has.
        """
        if self.is_finalized:
            raise op.refuse("a finalized graph takes no more ops")
        if op.id in self._ops:
            raise op.refuse(f"ids of ops must differ; {self._ops[op.id].label} has {op.id} too")
        self._ops[op.id] = op

    def finalize(self, given: Tensors | None = None, *, kept: Collection[int] = ()) -> None:
        """Check the whole graph and infer every shape; no op can be added afterwards.

        Args:
            given: Known arrays by tensor id or name; None gives none. They determine extents, types and values of shape
                inputs that the graph leaves unknown. Default: None.

        Keyword Args:
            kept: The ids of tensors that are always stored: an op that reads such a tensor is not fused into the call
                that makes it. Default: ().
        """
        values = by_id(tensors_of(self.ops).values(), given or {})
        inference = infer(self.ops, values, {*kept, *(self._outputs or ())})
        wrong = set(self._outputs or ()) - set(producers_of(self.ops))
        if wrong:
            raise GraphError(f"$.output_ports: must be tensors that ops make; got {min(wrong)}")
        self._inference = inference

    @property
    def inference(self) -> Inference:
        """The result of the inference over the whole graph; raises GraphError if the graph is not finalized."""
        if self._inference is None:
            raise GraphError("the graph must be finalized first: call finalize()")
        return self._inference

    @property
    def tensors(self) -> Mapping[int, LogicalTensor]:
        """Every tensor by id, with inferred extents and type; needs a finalized graph."""
        return self.inference.tensors

    @property
    def inputs(self) -> tuple[int, ...]:
        """Ids of the tensors that no op makes, in order of first use."""
        return inputs_of(self.ops)

    @property
    def outputs(self) -> tuple[int, ...]:
        """Ids of the tensors that ``run`` returns."""
        if self._outputs is not None:
            return self._outputs
        read = {tensor.id for op in self.ops for tensor in op.inputs}
        return tuple(t.id for op in self.ops for t in op.outputs if t.id not in read)

    def with_given(self, tensors: Tensors, *, kept: Collection[int] = ()) -> Graph:
        """Return a copy of the graph that is finalized with the arguments: the arrays may determine unknown shapes.

        Args:
            tensors: Known arrays by tensor id or name, as ``given`` in ``finalize``.

        Keyword Args:
            kept: The ids of tensors that are always stored, as in ``finalize``. Default: ().
        """
        graph = Graph(self.ops, outputs=self._outputs, header=self.header)
        graph.finalize(tensors, kept=kept)
        return graph

    def partitions(self) -> tuple[Partition, ...]:
        """Return the partitions in running order, one per op or chain of fused ops; needs a finalized graph.

        A BiasAdd or ReLU that is fused into the call of another op is in the partition of that op.
        """
        inference = self.inference
        return tuple(
            Partition(n, step.ops, inference.tensors, inference.reasons.get(step.op.id))
            for n, step in enumerate(inference.steps)
        )

    @property
    def computed(self) -> frozenset[int]:
        """Ids of the outputs of supported ops except ReLU; you cannot give these tensors to ``run``."""
        return self.inference.computed

    def run(
        self,
        tensors: Tensors,
        *,
        observe: Callable[[Execution], None] | None = None,
        observe_skipped: Callable[[Op, str], None] | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> Outcome:
        """Run every supported op whose inputs are available, and return the outputs; needs a finalized graph.

        You can also give the output of a ReLU: this ReLU does not run then. A result is released when no later op reads
        it. If a skipped op reads a result, this result is returned too.

        Args:
            tensors: Arrays by tensor id or name: the graph's inputs, and outputs of unsupported ops.

        Keyword Args:
            observe: A function that receives every call that ran, in running order; None observes nothing. A ReLU that
                is not fused into a call is not observed. Default: None.
            observe_skipped: A function that receives every skipped op and the reason, in running order; None observes
                nothing. Default: None.
            limits: The largest sizes that are accepted. Default: Limits().

        Raises:
            GraphError: No op can run although the graph has supported ops other than ReLU.
        """
        values = by_id(self.tensors.values(), tensors)
        producers, inference = producers_of(self.ops), self.inference
        for tensor in self.computed & set(values):
            raise producers[tensor].refuse(f"it makes tensor {self.tensors[tensor].label}, which cannot be given")
        kept, held = set(self.outputs), 0
        computed: dict[int, Array] = {}
        results: dict[int, Array] = {}
        hands: dict[int, Callable[[Array], object]] = {}  # by tensor id: converts a result to its library's array
        skipped: dict[int, str] = {}

        def why_not(op: Op) -> str:
            outputs = [t.label for t in op.outputs if t.id in values]
            waits = [inference.tensors[t.id] for t in op.inputs if t.id not in values]
            why = f"tensor {outputs[0]} is given" if outputs else _waits_for(waits[0], producers) if waits else ""
            return inference.reasons.get(op.id, why)

        for whole in inference.steps:
            between = [tensor for op in whole.ops[:-1] for tensor in op.outputs]
            apart = [FusedOps((op,), op, inference.resolved.get(op.id)) for op in whole.ops]
            for step in apart if why_not(whole.op) or any(t.id in values for t in between) else [whole]:
                op = step.op
                if why := why_not(op):
                    skipped[op.id] = why
                    results |= {t.id: computed[t.id] for t in op.inputs if t.id in computed}
                    if observe_skipped is not None:
                        observe_skipped(op, why)
                    continue
                row, output = operator_of(op), op.outputs[0].id
                assert row is not None  # an op without a row has a reason, and is skipped
                first = op.inputs[0].id
                hands[output] = hands.get(first) or like(values[first])
                left = limits.memory_bytes - held
                if row is RELU:
                    computed[output] = rectify(op, inference.tensors, values, left)
                else:
                    execution = execute(step, row, inference.tensors, values, left)
                    if observe is not None:
                        observe(execution)
                    computed[output] = execution.result
                    del execution  # frees the op's operands
                values[output] = computed[output]
                held += memory_of(computed[output])
                if output in kept:
                    results[output] = computed[output]
            for tensor in (*whole.released, *(tensor.id for tensor in between)):
                values.pop(tensor, None)
                if tensor in computed and tensor not in results:
                    held -= memory_of(computed.pop(tensor))
        starved = [op for op in inference.order if op.id not in inference.reasons and operator_of(op) is not RELU]
        if starved and len(skipped) == len(self.ops):
            raise starved[0].refuse(f"no op can run; this one {skipped[starved[0].id]}")
        return Outcome({tensor: hands[tensor](array) for tensor, array in results.items()}, skipped)


def _waits_for(tensor: LogicalTensor, producers: Mapping[int, Op]) -> str:
    return f"waits for tensor {tensor.label}" + (f" of {producers[tensor.id].label}" if tensor.id in producers else "")
