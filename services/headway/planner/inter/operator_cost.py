"""Estimates what each operator of a captured model takes when a stage's devices share its products. Pure.

Weights are split as Megatron does: a product of whole activations splits its columns, and what it makes is split; a
product of split activations splits its rows, and what it makes is summed over the devices. What lies between works on
its part; all else every device does whole. A sharding solver would do no worse; it plugs in at `operator_costs`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headway.core.catalogue import Device
from headway.core.cost.costs import Costs
from headway.core.graph import Graph, Operator, OperatorKind, TensorRole, TensorSpec, dtype_bytes
from headway.core.links import Links
from headway.core.sharding_spec import Shard
from headway.planner.intra.strategies import Splitter

_WEIGHTED = (OperatorKind.MATMUL, OperatorKind.BATCHED_MATMUL, OperatorKind.CONVOLUTION, OperatorKind.EMBEDDING)
_HELD = (TensorRole.PARAMETER, TensorRole.BUFFER)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCost:
    """The cost of one operator on each of a stage's devices.

    Attributes:
        seconds: computing and exchanging between the devices.
        error_s: estimated error of `seconds`.
        weight_bytes: by the names of the parameters that it reads.
    """

    seconds: float
    error_s: float
    weight_bytes: dict[str, int]


def operator_costs(graph: Graph, costs: Costs, links: Links, *, op: int) -> list[OperatorCost]:
    """Costs of a forward pass on `op` devices, in the graph's order.

    Args:
        links: between the devices of a stage.
    """
    pass_ = _Pass(graph.tensors_by_name(), costs, links, op)
    return [pass_.cost(operator) for operator in graph.operators]


def computable(graph: Graph, device: Device) -> Graph:
    """The graph in dtypes that the device has rates for: for one that it lacks, another of as many bytes."""
    return replace(graph, tensors=tuple(replace(each, dtype=_alike(each.dtype, device)) for each in graph.tensors))


def _alike(dtype: str, device: Device) -> str:
    if dtype in device.peak or "float" not in dtype:
        return dtype
    return next((known for known in device.peak if dtype_bytes(known) == dtype_bytes(dtype)), dtype)


class _Pass:
    """A forward pass on several devices: it knows how the activations lie of which each has a part."""

    def __init__(self, tensors: Mapping[str, TensorSpec], costs: Costs, links: Links, op: int) -> None:
        self._tensors, self._costs, self._links, self._op = tensors, costs, links, op
        self._lies: dict[str, Shard] = {}

    def cost(self, operator: Operator) -> OperatorCost:
        weights = self._weights(operator)
        splitter = Splitter(operator, self._tensors, (self._op,))
        loop = self._loop(operator, weights, splitter) if self._op > 1 else None
        time = self._costs.time(operator, self._tensors, {} if loop is None else {loop: self._op})
        exchange_s = 0.0
        if loop is not None and operator.space is not None:
            is_summed = operator.kind is OperatorKind.EMBEDDING or loop in operator.space.reduced
            if is_summed and weights:
                num_bytes = sum(self._tensors[name].num_bytes for name in operator.outputs)
                sent = 2 * (self._op - 1) / self._op * num_bytes
                exchange_s = self._links.seconds("all_reduce", sent, num_ranks=self._op)
            else:
                shards = zip(operator.space.writes, splitter.writes, strict=True)
                self._lies |= {access.tensor: made[loop] for access, made in shards if loop in made}
        return OperatorCost(
            seconds=time.seconds + exchange_s,
            error_s=time.seconds * time.relative_error + exchange_s / 2,
            weight_bytes=self._parameter_bytes(operator, weights if loop is not None else ()),
        )

    def _loop(self, operator: Operator, weights: tuple[str, ...], splitter: Splitter) -> str | None:
        """The loop that devices split; None where each does the whole."""
        reads = operator.space.reads if operator.space is not None else ()
        of = {access.tensor: shards for access, shards in zip(reads, splitter.reads, strict=True)}
        split = [name for name in of if name in self._lies]
        if split:
            lies = self._lies[split[0]]
            loops = [loop for loop, shard in of[split[0]].items() if shard.dim == lies.dim]
            loops.sort(key=lambda loop: of[split[0]][loop] != lies)
        else:
            made = {loop for shards in splitter.writes for loop in shards}
            held = {name for name in of if self._tensors[name].role in _HELD}
            activations = {loop for name in of.keys() - held for loop in of[name]}
            loops = [loop for name in weights for loop in of.get(name, ()) if loop in made and loop not in activations]
        possible = (loop for loop in loops if loop in splitter.loops and splitter.strategy((loop,)) is not None)
        return next(possible, None)

    def _weights(self, operator: Operator) -> tuple[str, ...]:
        """The parameters that a product may split: those of two dims at least."""
        if operator.kind not in _WEIGHTED:
            return ()
        tensors = (self._tensors[name] for name in operator.inputs if name in self._tensors)
        return tuple(each.name for each in tensors if each.role is TensorRole.PARAMETER and len(each.shape) > 1)

    def _parameter_bytes(self, operator: Operator, split: tuple[str, ...]) -> dict[str, int]:
        tensors = (self._tensors[name] for name in operator.inputs if name in self._tensors)
        return {
            each.name: -(-each.num_bytes // (self._op if each.name in split else 1))
            for each in tensors
            if each.role in _HELD
        }
