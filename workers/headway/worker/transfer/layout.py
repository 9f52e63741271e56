"""The layout of a worker's blocks in memory, and the model that their keys and values belong to."""

from dataclasses import dataclass, fields

from headway.core.errors import FailedPreconditionError


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockLayout:
    """Equal layouts, equal bytes for equal tokens.

    Attributes:
        model, directory, quantization: the weights that keys and values come from.
        block_size: tokens per block.
    """

    model: str
    directory: str
    quantization: str
    dtype: str
    block_size: int
    num_layers: int
    num_kv_heads: int
    head_dim: int

    def check_equal(self, theirs: "BlockLayout") -> None:
        """FailedPreconditionError, naming what differs: then tokens have to be computed anew."""
        values = ((field.name, getattr(self, field.name), getattr(theirs, field.name)) for field in fields(self))
        faults = [f"{name} is {other!r} there and {own!r} here" for name, own, other in values if own != other]
        if faults:
            raise FailedPreconditionError(f"Blocks cannot be exchanged: {', '.join(faults)}.")
