"""Parameters that several ranks hold, and of which each changes a part and keeps the optimizer's state for it (ZeRO
stage 1, Rajbhandari et al. 2020)."""

from collections.abc import Iterator, Mapping

import torch

from headway.train.links import Links, Pending

PIECE = "@"


class Shard:
    """One rank's part of some parameters that lie behind each other in one tensor.

    Args:
        parameters: by name; what they hold is moved there.
        summands: this rank's own sums of their gradients, in the same order; as many equal parts as there are ranks.

    Attributes:
        ranks: that have a part.
        parameters: by name, as views of the tensor.
        gradient: of the own part: its place among the summands, to which those of the other ranks are added.
    """

    def __init__(
        self, parameters: Mapping[str, torch.Tensor], summands: torch.Tensor, *, ranks: tuple[int, ...], rank: int
    ) -> None:
        self.summands, self.ranks = summands, ranks
        self._values = torch.zeros_like(summands)
        self.parameters: dict[str, torch.Tensor] = {}
        self._size = len(summands) // len(ranks)
        self._first = ranks.index(rank) * self._size
        self.gradient = summands[self._first : self._first + self._size]
        at = 0
        for name, parameter in parameters.items():
            end = at + parameter.numel()
            self.parameters[name] = self._values[at:end].view(parameter.shape)
            self.parameters[name].copy_(parameter)
            at = end

    @property
    def dtype(self) -> torch.dtype:
        return self._values.dtype

    @property
    def shapes(self) -> dict[str, torch.Size]:
        return {name: parameter.shape for name, parameter in self.parameters.items()}

    def pieces(self) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
        """What this rank changes: 'NAME@FIRST', which says where in the parameter it begins, with the piece and its
        gradient."""
        at = 0
        for name, parameter in self.parameters.items():
            first, end = max(at, self._first), min(at + parameter.numel(), self._first + self._size)
            if first < end:
                gradient = self.gradient[first - self._first : end - self._first]
                yield f"{name}{PIECE}{first - at}", self._values[first:end], gradient
            at += parameter.numel()

    def gather(self, links: Links) -> Pending:
        """Begins to fetch what the other ranks have changed."""
        return links.gather(self._values, self.ranks)


def whole_state(pieces: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """An optimizer's state by 'KEY/NAME', of pieces by 'KEY/NAME@FIRST' too: those of one dim, put together."""
    found: dict[str, torch.Tensor] = {}
    cut: dict[str, dict[int, torch.Tensor]] = {}
    for key, value in pieces.items():
        name, mark, first = key.rpartition(PIECE)
        if mark:
            cut.setdefault(name, {})[int(first)] = value
        else:
            found[key] = value
    for name, parts in cut.items():
        ordered = [parts[first] for first in sorted(parts)]
        found[name] = torch.cat(ordered) if ordered[0].ndim else ordered[0]
    return found
