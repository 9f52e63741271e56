"""A model as a graph of operators: what capture finds, what measuring times and what planners split."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import prod

from headway.core.codec import to_document
from headway.core.iteration import IterationSpace

_DTYPE_BYTES = {"float64": 8, "complex64": 8, "complex128": 16, "int64": 8, "float32": 4, "int32": 4, "uint32": 4}
_DTYPE_BYTES |= {"float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2, "uint64": 8}  # all others: one byte
_MOMENTS_BYTES = 8
_MASTER_BYTES = 4


class TensorRole(StrEnum):
    """The role of a tensor in the model."""

    PARAMETER = "parameter"
    BUFFER = "buffer"
    INPUT = "input"
    ACTIVATION = "activation"
    OUTPUT = "output"
    GRADIENT = "gradient"


class OperatorKind(StrEnum):
    """Families of operators that cost and split alike. All but the first four are bound by memory."""

    MATMUL = "matmul"
    BATCHED_MATMUL = "batched_matmul"
    CONVOLUTION = "convolution"
    ATTENTION = "attention"
    EMBEDDING = "embedding"
    NORMALIZATION = "normalization"
    SOFTMAX = "softmax"
    REDUCTION = "reduction"
    ELEMENTWISE = "elementwise"
    POOLING = "pooling"
    GATHER = "gather"
    SCATTER = "scatter"
    DISPATCH = "dispatch"
    SORT = "sort"
    SCAN = "scan"
    COPY = "copy"
    CREATE = "create"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """A tensor with bytes of its own; views have none and don't appear.

    Attributes:
        name: of a parameter or buffer its path in the module, else that of the operator that makes it.
        primal: of a gradient the parameter or activation that it is the gradient of, or of a view of which; empty for
            all others. `headway.core.gradients` finds more.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: TensorRole
    primal: str = ""

    @property
    def num_elements(self) -> int:
        return prod(self.shape)

    @property
    def num_bytes(self) -> int:
        return self.num_elements * dtype_bytes(self.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator of a graph: one kernel's worth of work.

    Attributes:
        name: its name, unique in the graph.
        target: the function that it calls, e.g. 'aten.addmm.default'.
        module: path of the module that it belongs to; that of its forward operator where it is a backward one.
        inputs, outputs: names of tensors, views resolved to what they view; each once.
        flops: two for each multiply-add of products, convolutions and attention (causal or not); else 0.
        bytes_read: the bytes of distinct elements: of a broadcast operand each once, of a sliced one the slice.
        space: None where it is not known, as for unknown operators.
        forward: for a backward operator, the name of the forward one that it belongs to.
        attributes: arguments that are no tensors, as text.
    """

    name: str
    kind: OperatorKind
    target: str
    module: str = ""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    flops: int = 0
    bytes_read: int
    bytes_written: int
    space: IterationSpace | None = None
    is_backward: bool = False
    forward: str = ""
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Operators in an order in which they can run.

    Attributes:
        saved: tensors made by forward operators that backward operators read.
        trained: parameters that get a gradient.
        gradients: the tensors that are these gradients, in the order of `trained`.
        batch: examples at once when it was captured; 0 where that is not known.
    """

    name: str
    is_training: bool
    tensors: tuple[TensorSpec, ...]
    operators: tuple[Operator, ...]
    saved: tuple[str, ...] = ()
    trained: tuple[str, ...] = ()
    gradients: tuple[str, ...] = ()
    batch: int = 0

    def tensors_by_name(self) -> dict[str, TensorSpec]:
        return {tensor.name: tensor for tensor in self.tensors}

    @property
    def parameters(self) -> int:
        """Numbers that can be learnt; one that several modules share counts once."""
        return sum(tensor.num_elements for tensor in self._of_role(TensorRole.PARAMETER))

    @property
    def parameter_bytes(self) -> int:
        return sum(tensor.num_bytes for tensor in self._of_role(TensorRole.PARAMETER))

    @property
    def gradient_bytes(self) -> int:
        """The bytes of the gradients of parameters as the backward pass makes them, each in its parameter's dtype."""
        return sum(tensor.num_bytes for tensor in self._trained())

    @property
    def optimizer_bytes(self) -> int:
        """The bytes of Adam's state: two float32 moments, and a float32 copy of parameters that are kept in less."""
        return sum(
            tensor.num_elements * (_MOMENTS_BYTES + (_MASTER_BYTES if dtype_bytes(tensor.dtype) < 4 else 0))
            for tensor in self._trained()
        )

    @property
    def flops(self) -> int:
        return sum(operator.flops for operator in self.operators)

    @property
    def forward_flops(self) -> int:
        return sum(operator.flops for operator in self.operators if not operator.is_backward)

    @property
    def activation_bytes(self) -> int:
        """The bytes of activations: in training all that the forward pass keeps for the backward pass; else the most
        that is held at any time.
        """
        if not self.is_training:
            return self._peak_bytes()
        tensors = self.tensors_by_name()
        return sum(tensors[name].num_bytes for name in self.saved)

    @property
    def unknown_operators(self) -> dict[str, int]:
        """The targets that capture has no rule for, with the number of their calls."""
        return dict(sorted(Counter(op.target for op in self.operators if op.kind is OperatorKind.UNKNOWN).items()))

    @property
    def content_hash(self) -> str:
        """Stable over processes; changes when anything but the name does."""
        text = json.dumps(to_document(replace(self, name="")), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _of_role(self, role: TensorRole) -> Iterable[TensorSpec]:
        return (tensor for tensor in self.tensors if tensor.role is role)

    def _trained(self) -> Iterable[TensorSpec]:
        names = frozenset(self.trained)
        return (tensor for tensor in self.tensors if tensor.name in names)

    def _peak_bytes(self) -> int:
        """A tensor is held from the operator that makes it to the last that reads it; outputs to the end."""
        held = {t.name: t.num_bytes for t in self.tensors if t.role in (TensorRole.ACTIVATION, TensorRole.OUTPUT)}
        outputs = {tensor.name for tensor in self._of_role(TensorRole.OUTPUT)}
        last_use = {name: i for i, operator in enumerate(self.operators) for name in operator.inputs + operator.outputs}
        live: set[str] = set()
        num_bytes = peak = 0
        for i, operator in enumerate(self.operators):
            for name in operator.outputs:
                if name in held and name not in live:
                    live.add(name)
                    num_bytes += held[name]
            peak = max(peak, num_bytes)
            for name in {*operator.inputs, *operator.outputs} & live - outputs:
                if last_use[name] == i:
                    live.remove(name)
                    num_bytes -= held[name]
        return peak


def dtype_bytes(dtype: str) -> int:
    """Bytes of one element; dtypes go by torch's names without the `torch.`."""
    return _DTYPE_BYTES.get(dtype, 1)
