"""What a choice of strategies costs, as arrays: seconds and bytes of each device. Pure."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Quantity(IntEnum):
    """The first dim of arrays of quantities."""

    FORWARD_S = 0
    BACKWARD_S = 1
    ONCE_S = 2
    STATE_BYTES = 3
    ACTIVATION_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prices:
    """What makes one objective of several quantities: seconds of a micro-batch, with bytes priced in seconds.

    A Lagrange multiplier for the memory of a device: the higher, the less memory the cheapest choice takes.

    Attributes:
        weights: [prices, quantities].
    """

    weights: Floats

    @classmethod
    def of(cls, *, num_micro_batches: int, second_per_byte: Floats, in_flight: Floats) -> "Prices":
        """Args:
        second_per_byte: [prices]; the multipliers.
        in_flight: [prices]; micro-batches whose activations are held.
        """
        weights = np.zeros((second_per_byte.size, len(Quantity)))
        weights[:, Quantity.FORWARD_S] = weights[:, Quantity.BACKWARD_S] = 1
        weights[:, Quantity.ONCE_S] = 1 / num_micro_batches
        weights[:, Quantity.STATE_BYTES] = second_per_byte
        weights[:, Quantity.ACTIVATION_BYTES] = second_per_byte * in_flight
        return cls(weights=weights)

    @property
    def size(self) -> int:
        return len(self.weights)

    def objective(self, quantities: Floats) -> Floats:
        """Maps [quantities, ...] to [..., prices]."""
        return np.tensordot(quantities, self.weights, axes=(0, 1))
