"""One model of the zoo: what a paper says of it, the module that this describes, and inputs for it."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, Self

from headway.core.errors import InvalidArgumentError

if TYPE_CHECKING:
    import torch

SMALL_SUFFIX = "-small"


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input of a model's forward function: numbers, or with a vocabulary ids below it."""

    dims: tuple[int, ...]
    vocabulary: int | None = None


class Architecture(Protocol):
    """The configuration of one model, hashable and free of torch."""

    @property
    def seq(self) -> int | None:
        """Tokens of a sequence in the paper, which is also the longest; None where a model has no sequences."""

    def small(self) -> Self:
        """The same structure in tiny sizes: forward and backward take well under a second on a CPU."""

    def inputs(self, *, batch: int, seq: int) -> tuple[InputSpec, ...]:
        """The arguments of forward, in order. `seq` has no effect where a model has no sequences."""

    def targets(self, *, batch: int, seq: int) -> InputSpec | None:
        """The classes that training wants of the scores of forward's first output; None where there are no classes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooModel:
    """A model, with the place that describes it.

    Attributes:
        name: what `zoo:NAME` calls it.
        family: models that differ only in sizes.
        source: the paper and its table or section.
        config: its sizes.
        is_trained_in_paper: whether the paper trains it; otherwise it is only served.
        expected_parameters: as the source says, rounded as it rounds; None where it says nothing.
        note: what the source leaves open and how it was filled, or where it contradicts itself.
    """

    name: str
    family: str
    source: str
    config: Architecture
    is_trained_in_paper: bool
    expected_parameters: int | None = None
    note: str = ""

    def small(self) -> Self:
        """The same structure in tiny sizes, named NAME-small."""
        return replace(self, name=self.name + SMALL_SUFFIX, config=self.config.small(), expected_parameters=None)

    def example_inputs(
        self, *, batch: int = 1, seq: int | None = None, device: "str | torch.device" = "meta"
    ) -> "tuple[torch.Tensor, ...]":
        """Arguments of the module's forward function, the same in each call.

        Args:
            batch: sequences, images or records.
            seq: tokens of a sequence; by default as many as in the paper, which is also the longest.
            device: where they are put.

        Raises:
            InvalidArgumentError: no batch, or a sequence of a length that the model cannot have.
        """
        return _tensors(self.config.inputs(batch=self._batch(batch), seq=self._seq(seq)), device)

    def example_targets(
        self, *, batch: int = 1, seq: int | None = None, device: "str | torch.device" = "meta"
    ) -> "torch.Tensor | None":
        """Classes for a cross-entropy with the module's first output: tokens or labels; None where it has none.

        Args and errors are those of `example_inputs`.
        """
        spec = self.config.targets(batch=self._batch(batch), seq=self._seq(seq))
        return None if spec is None else _tensors((spec,), device)[0]

    def _batch(self, batch: int) -> int:
        if batch < 1:
            raise InvalidArgumentError(f"A batch of {batch} is empty.", hint="Give 1 or more.", field="batch")
        return batch

    def _seq(self, seq: int | None) -> int:
        longest = self.config.seq
        if longest is None and seq is not None:
            raise InvalidArgumentError(
                f"{self.name} has no sequences, so that a length means nothing.", hint="Leave it out.", field="seq"
            )
        if longest is not None and seq is not None and not 1 <= seq <= longest:
            raise InvalidArgumentError(
                f"{self.name} has sequences of 1 to {longest} tokens, not {seq}.", hint="Give fewer.", field="seq"
            )
        return seq or longest or 1


def _tensors(specs: tuple[InputSpec, ...], device: "str | torch.device") -> "tuple[torch.Tensor, ...]":
    """Makes random tensors, the same in each call; on the meta device without values."""
    import torch

    if torch.device(device).type == "meta":
        return tuple(
            torch.empty(spec.dims, dtype=torch.float32 if spec.vocabulary is None else torch.int64, device=device)
            for spec in specs
        )
    generator = torch.Generator().manual_seed(0)
    return tuple(
        (
            torch.randn(spec.dims, generator=generator)
            if spec.vocabulary is None
            else torch.randint(spec.vocabulary, spec.dims, generator=generator)
        ).to(device)
        for spec in specs
    )
