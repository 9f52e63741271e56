"""The question that GraphPipe answers, on plain figures (GraphPipe, section 3). Pure."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.core.errors import InvalidArgumentError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A tensor that one operator makes and others read.

    Attributes:
        bytes_per_sample: of one sample; its gradient has as many.
    """

    producer: int
    consumers: tuple[int, ...]
    bytes_per_sample: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PipelineProblem:
    """Operators to be cut into stages, each with data-parallel devices of its own.

    Attributes:
        forward_s, backward_s: [operators, sizes]; seconds of 1, 2, 4, ... samples on one device.
        state_bytes: [operators]; of parameters, gradients and optimizer on each device.
        saved_bytes: [operators]; of one sample, kept from its forward to its backward pass.
        gradient_bytes: [operators]; that data-parallel devices synchronise once an iteration.
        flows: their producers come before their consumers in the operators' order.
        batch: samples of one iteration.
        memory_bytes: of each device.
        handover_bytes_per_s: between a device of one stage and one of the next.
        sync_bytes_per_s: between the devices of one stage.
    """

    forward_s: Floats
    backward_s: Floats
    state_bytes: Floats
    saved_bytes: Floats
    gradient_bytes: Floats
    flows: tuple[Flow, ...]
    batch: int
    num_devices: int
    memory_bytes: float
    handover_bytes_per_s: float
    sync_bytes_per_s: float

    def __post_init__(self) -> None:
        num_operators, num_sizes = self.forward_s.shape
        rows = {"state_bytes": self.state_bytes, "saved_bytes": self.saved_bytes, "gradient_bytes": self.gradient_bytes}
        fits = {name: values.shape == (num_operators,) for name, values in rows.items()}
        fits["backward_s"] = self.backward_s.shape == self.forward_s.shape
        fits["flows"] = all(0 <= f.producer < min(f.consumers, default=num_operators) for f in self.flows)
        fits["flows"] &= all(max(f.consumers, default=0) < num_operators for f in self.flows)
        for field, is_right in {**fits, "forward_s": num_operators > 0 and num_sizes > 0}.items():
            if not is_right:
                raise InvalidArgumentError(
                    f"{field} does not fit {num_operators} operators and {num_sizes} sizes.",
                    hint="All arrays have a row for each operator; tensors go from earlier operators to later ones.",
                    field=field,
                )
        for field in ("batch", "num_devices"):
            if getattr(self, field) < 1:
                raise InvalidArgumentError(f"{field} is {getattr(self, field)}.", hint="Give 1 or more.", field=field)

    @property
    def num_operators(self) -> int:
        return len(self.forward_s)

    @property
    def num_sizes(self) -> int:
        return int(self.forward_s.shape[1])

    @property
    def edges(self) -> list[tuple[int, int]]:
        return [(flow.producer, consumer) for flow in self.flows for consumer in flow.consumers]

    def micro_batches(self) -> list[int]:
        """Sizes of micro-batches: the powers of two that divide the batch and have times on some number of devices."""
        most = self.num_devices << (self.num_sizes - 1)
        sizes = (1 << power for power in range(self.batch.bit_length()))
        return [size for size in sizes if size <= most and self.batch % size == 0]
