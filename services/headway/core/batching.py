"""A captured graph with another number of examples at once. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from headway.core.batch_dims import BatchDims
from headway.core.errors import InvalidArgumentError
from headway.core.graph import Graph, Operator, OperatorKind, TensorSpec, dtype_bytes
from headway.core.iteration import Access, Dim, IterationSpace

_FINDING = (OperatorKind.EMBEDDING, OperatorKind.GATHER, OperatorKind.DISPATCH)


def at_batch(graph: Graph, batch: int) -> Graph:
    """Returns the graph as if it had been captured with `batch` examples at once.

    Sizes grow in proportion, and are rounded up where an expert's capacity does not divide. The operators' attributes,
    which have sizes of the batch as it was captured, stay as they are.

    Raises:
        InvalidArgumentError: there are no examples.
        FailedPreconditionError: it is not known what grows with the batch; see `BatchDims`.
    """
    if batch < 1:
        raise InvalidArgumentError(f"A batch of {batch} is empty.", hint="Give 1 or more.", field="batch")
    if batch == graph.batch:
        return graph
    return replace(resized(graph, BatchDims(graph), batch), batch=batch)


def resized(graph: Graph, places: BatchDims, size: int) -> Graph:
    """The graph with another size of what grows."""
    growth = _Growth(graph, places, size)
    operators = tuple(
        growth.operator(operator, loops) for operator, loops in zip(graph.operators, places.loops, strict=True)
    )
    return replace(graph, tensors=tuple(growth.tensors.values()), operators=operators)


class _Growth:
    """A graph's tensors and operators at another size.

    Attributes:
        places: where it grows.
        tensors: as they are at the other size.
    """

    def __init__(self, graph: Graph, places: BatchDims, size: int) -> None:
        self.places = places
        self._old = graph.tensors_by_name()
        self._ratio = size, places.size
        self.tensors = {tensor.name: self._tensor(tensor) for tensor in graph.tensors}
        growing = self.places.dims
        self._bytes = {tensor.name: tensor.num_bytes for tensor in graph.tensors}
        self._grown_bytes = {name: self.tensors[name].num_bytes for name in growing}

    def operator(self, operator: Operator, loops: Mapping[str, int]) -> Operator:
        if not loops and self.places.dims.keys().isdisjoint(operator.inputs + operator.outputs):
            return operator
        space, flops = operator.space, operator.flops
        if space is not None and loops:
            dims = tuple([Dim(dim.name, self._size(dim.size)) if dim.name in loops else dim for dim in space.dims])
            if flops:
                flops = flops * prod([dim.size for dim in dims]) // space.volume
            space = IterationSpace(dims=dims, reads=space.reads, writes=space.writes, reduced=space.reduced)
        fixed = sum([self._bytes[name] for name in operator.outputs if name not in self._grown_bytes])
        return replace(
            operator,
            space=space,
            flops=flops,
            bytes_read=self._bytes_read(operator),
            bytes_written=self._scaled(operator.bytes_written, operator.outputs, fixed=fixed),
        )

    def _size(self, size: int) -> int:
        new, old = self._ratio
        return -(-size * new // old)

    def _tensor(self, tensor: TensorSpec) -> TensorSpec:
        place = self.places.dims.get(tensor.name)
        if not place:
            return tensor
        shape = tuple([self._size(size) if dim in place else size for dim, size in enumerate(tensor.shape)])
        return replace(tensor, shape=shape)

    def _bytes_read(self, operator: Operator) -> int:
        """Scales what is read of tensors that grow; of the others the same elements are read, but of a table as many
        as the result has."""
        if operator.kind is OperatorKind.CREATE:
            return 0
        fixed = {name: self._bytes_of(operator, name) for name in operator.inputs if name not in self._grown_bytes}
        before = after = sum(fixed.values())
        if operator.kind in _FINDING and not operator.is_backward and (table := operator.inputs[0]) in fixed:
            itemsize, result = dtype_bytes(self._old[table].dtype), operator.outputs[0]
            before += min(self._bytes[table], self._old[result].num_elements * itemsize) - fixed[table]
            after += min(self._bytes[table], self.tensors[result].num_elements * itemsize) - fixed[table]
        return self._scaled(operator.bytes_read, operator.inputs, fixed=before) - before + after

    def _bytes_of(self, operator: Operator, name: str) -> int:
        """Bytes that are read of a tensor: of one that is read in slices, what the loops run along."""
        space, tensor = operator.space, self._old[name]
        accesses = [access for access in space.reads if access.tensor == name] if space is not None else []
        if space is None or not accesses:
            return self._bytes[name]
        sizes = {dim.name: dim.size for dim in space.dims}
        elements = sum([_num_elements(access, tensor.shape, sizes) for access in accesses])
        return min(self._bytes[name], elements * dtype_bytes(tensor.dtype))

    def _scaled(self, num_bytes: int, names: Sequence[str], *, fixed: int) -> int:
        """Scales the part of an operator's bytes that belongs to the tensors that grow, all but `fixed`."""
        old = new = 0
        for name in names:
            if name in self._grown_bytes:
                old += self._bytes[name]
                new += self._grown_bytes[name]
        kept = min(fixed, num_bytes)
        return kept + ((num_bytes - kept) * new // old if old else 0)


def _num_elements(access: Access, shape: Sequence[int], sizes: Mapping[str, int]) -> int:
    elements = 1
    for size, text in zip(shape, access.dims, strict=True):
        along = sizes.get(text, size)  # of several loops, of a window or none all indices
        if "*" in text:
            along = prod([sizes.get(part, 1) for part in text.split("*")])
        elements *= min(size, along)
    return elements
