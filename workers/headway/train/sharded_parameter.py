"""Parameters of which several ranks each keep a part of the gradient (ZeRO stage 2), or of the parameter too (stage 3,
Rajbhandari et al. 2020)."""

from collections.abc import Callable, Iterator, Mapping

import torch

from headway.core.execution.execution import Execution
from headway.core.execution.specs import parameter_holders
from headway.core.execution.zero import GATHER_PARAMETER, SCATTER_GRADIENT, held_parts
from headway.train.links import Links, Pending
from headway.train.shard import PIECE


class ShardedParameter:
    """One rank's part of a parameter.

    Args:
        whole: what this rank would have of it without ZeRO.
        ranks: that would have the same, ascending.
        keeps_whole: whether it is held whole, and only the gradient in parts.
        device: of what is held.

    Attributes:
        held: what parts of stages are given of it: all, or the part, of one dim.
        part: this rank's part, of one dim, with zeros at the end of the last one where it does not divide.
    """

    def __init__(
        self, name: str, whole: torch.Tensor, *, ranks: tuple[int, ...], rank: int, keeps_whole: bool,
        device: torch.device,
    ) -> None:  # fmt: skip
        self.name, self.ranks, self.shape, self.keeps_whole = name, ranks, whole.shape, keeps_whole
        self._count, size = whole.numel(), -(-whole.numel() // len(ranks))
        self._first = ranks.index(rank) * size
        self._flat = whole.new_zeros(size * len(ranks) if keeps_whole else 0, device=device)
        if keeps_whole:
            self._flat[: self._count].copy_(whole.flatten())
            self.part = self._flat[self._first : self._first + size]
            self.held = self._flat[: self._count].view(self.shape)
        else:
            self.part = self.held = whole.new_zeros(size, device=device)
            own = whole.flatten()[self._first : self._first + size]
            self.part[: len(own)].copy_(own)

    @property
    def dtype(self) -> torch.dtype:
        return self.part.dtype

    @property
    def shapes(self) -> dict[str, torch.Size]:
        return {self.name: self.shape}

    def pieces(self, gradient: torch.Tensor) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
        """What this rank changes: 'NAME@FIRST', which says where in the parameter it begins, with the piece and its
        gradient; nothing where the parameter has fewer elements.

        Args:
            gradient: of the part.
        """
        count = min(len(self.part), self._count - self._first)
        if count > 0:
            yield f"{self.name}{PIECE}{self._first}", self.part[:count], gradient[:count]

    def gather(self, links: Links) -> Pending:
        """Begins to fetch what other ranks have changed of one that is held whole."""
        return links.gather(self._flat, self.ranks)

    def whole(self, links: Links) -> torch.Tensor:
        """What this rank would have of it without ZeRO; all ranks that hold it ask at the same time."""
        return self.held if self.keeps_whole else self.of(self.part, links)

    def of(self, part: torch.Tensor, links: Links) -> torch.Tensor:
        """The parameter of parts that lie as this one's."""
        return links.gather_flat(part, self.ranks)[: self._count].view(self.shape)


def sharded_parameters(
    execution: Execution, rank: int, given: Mapping[str, torch.Tensor], device: torch.device
) -> dict[str, ShardedParameter]:
    """By name, in its order, those of a rank.

    Args:
        given: what this rank would have of parameters without ZeRO.
        device: of what is held.
    """
    holders = parameter_holders(execution.stages)
    found = {}
    for name, held in sorted(held_parts(execution.stages).items()):
        ranks = next((group for group in holders[name] if rank in group), None)
        if ranks is not None:
            found[name] = ShardedParameter(
                name, given[name], ranks=ranks, rank=rank, keeps_whole=held.zero < 3, device=device
            )
    return found


def sharing_functions(
    parameters: Mapping[str, ShardedParameter], links: Links
) -> dict[str, Callable[..., torch.Tensor]]:
    """What parts of stages call, by its target; all ranks that hold a parameter call it at the same time."""

    def gather(part: torch.Tensor, name: str) -> torch.Tensor:
        return parameters[name].of(part, links)

    def scatter(gradient: torch.Tensor, name: str) -> torch.Tensor:
        ranks = parameters[name].ranks
        return links.exchange_row(gradient.view(len(ranks), -1), ranks)

    return {GATHER_PARAMETER: gather, SCATTER_GRADIENT: scatter}
