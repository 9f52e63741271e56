"""What a choice of strategies costs, as arrays: seconds and bytes of each device. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
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
        least_zero_stages: [prices], or one for all of them; that parameters have, where they may.
    """

    weights: Floats
    least_zero_stages: NDArray[np.intp] = field(default_factory=lambda: np.zeros(1, np.intp))

    @classmethod
    def of(
        cls,
        *,
        num_micro_batches: int,
        second_per_byte: Floats,
        in_flight: Floats,
        least_zero_stages: Sequence[int] = (0,),
    ) -> "Prices":
        """Args:
        second_per_byte: [prices]; the multipliers.
        in_flight: [prices]; micro-batches whose activations are held.
        least_zero_stages: [prices], or one for all of them.
        """
        weights = np.zeros((second_per_byte.size, len(Quantity)))
        weights[:, Quantity.FORWARD_S] = weights[:, Quantity.BACKWARD_S] = 1
        weights[:, Quantity.ONCE_S] = 1 / num_micro_batches
        weights[:, Quantity.STATE_BYTES] = second_per_byte
        weights[:, Quantity.ACTIVATION_BYTES] = second_per_byte * in_flight
        return cls(weights=weights, least_zero_stages=np.array(least_zero_stages, np.intp))

    @property
    def size(self) -> int:
        return len(self.weights)

    def objective(self, quantities: Floats) -> Floats:
        """Maps [quantities, ...] to [..., prices]."""
        return np.tensordot(quantities, self.weights, axes=(0, 1))
