"""The seconds that workers take for a collective, by its kind and the number of ranks. Pure."""

from dataclasses import dataclass
from typing import Protocol

from headway.core.catalogue.figure import Provenance
from headway.core.cluster import Fabric
from headway.core.hardware.family import COLLECTIVES, Transport
from headway.core.hardware.profile import LinkFit

_ESTIMATE_ERROR = 0.5
_FAMILIES = {(each.operation, each.transport): name for name, each in COLLECTIVES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFigure:
    """A collective among so many ranks, by a latency and a rate.

    Attributes:
        operation: 'all_reduce', 'all_gather', 'all_to_all', 'gather' or 'send'.
        latency_s: of one, however little it carries.
        bytes_per_s: that leave a rank.
        relative_error: 0.1 is 10 %.
        profile_id: of the hardware profile that it is from; empty where it is the catalogue's.
    """

    operation: str
    num_ranks: int
    latency_s: float
    bytes_per_s: float
    provenance: Provenance
    relative_error: float
    profile_id: str = ""


class Links(Protocol):
    """The links between the workers of a group."""

    def figure(self, operation: str, *, num_ranks: int) -> LinkFigure: ...

    def seconds(self, operation: str, num_bytes: float, *, num_ranks: int) -> float:
        """Returns the seconds of one collective in which `num_bytes` leave each rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsualLinks:
    """Implements `Links`: every collective as the catalogue's `fabric` carries it."""

    fabric: Fabric

    def figure(self, operation: str, *, num_ranks: int) -> LinkFigure:
        return LinkFigure(
            operation=operation,
            num_ranks=num_ranks,
            latency_s=self.fabric.collective_s(0, num_ranks=num_ranks),
            bytes_per_s=self.fabric.bytes_per_s,
            provenance=Provenance.ESTIMATED,
            relative_error=_ESTIMATE_ERROR,
        )

    def seconds(self, operation: str, num_bytes: float, *, num_ranks: int) -> float:
        figure = self.figure(operation, num_ranks=num_ranks)
        return figure.latency_s + num_bytes / figure.bytes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLinks:
    """Implements `Links` by what was timed between workers like these.

    A number of ranks that was not timed is estimated by the nearest that was: the rate at which bytes leave a rank
    stays, and the latency goes with the rounds, log2 of the ranks. A gather carries to one what an all-gather does to
    all.

    Attributes:
        profile_id: of the hardware profile.
        device: 'cpu' or 'cuda', on which it was made.
        usual: for collectives that were not timed.
        num_near: ranks that follow each other and share a machine; more of them lie on several.
        are_on_one: whether the group does.
    """

    profile_id: str
    device: str
    fits: tuple[LinkFit, ...]
    usual: UsualLinks
    num_near: int
    are_on_one: bool

    def figure(self, operation: str, *, num_ranks: int) -> LinkFigure:
        fit = self._fit(operation, num_ranks)
        if fit is None:
            return self.usual.figure(operation, num_ranks=num_ranks)
        is_timed = fit.num_ranks == num_ranks
        return LinkFigure(
            operation=operation,
            num_ranks=num_ranks,
            latency_s=fit.latency_s * _num_rounds(num_ranks) / _num_rounds(fit.num_ranks),
            bytes_per_s=fit.bytes_per_s * _leaving_share(operation, fit.num_ranks),
            provenance=Provenance.MEASURED if is_timed else Provenance.ESTIMATED,
            relative_error=fit.relative_error if is_timed else _ESTIMATE_ERROR,
            profile_id=self.profile_id,
        )

    def seconds(self, operation: str, num_bytes: float, *, num_ranks: int) -> float:
        """Returns the seconds of one collective by the fitted, piecewise-linear curve."""
        fit = self._fit(operation, num_ranks)
        if fit is None:
            return self.usual.seconds(operation, num_bytes, num_ranks=num_ranks)
        further_s = fit.latency_s * (_num_rounds(num_ranks) / _num_rounds(fit.num_ranks) - 1)
        return fit.curve.at(num_bytes / _leaving_share(operation, fit.num_ranks)) + max(0.0, further_s)

    def _fit(self, operation: str, num_ranks: int) -> LinkFit | None:
        """Returns the fit for the nearest number of ranks, rather more than fewer; None where the collective was not
        timed.
        """
        kind = "all_gather" if operation == "gather" else operation
        family = _FAMILIES.get((kind, self._transport(operation, num_ranks)))
        timed = [fit for fit in self.fits if fit.collective == family]
        return min(timed, key=lambda fit: (abs(fit.num_ranks - num_ranks), -fit.num_ranks), default=None)

    def _transport(self, operation: str, num_ranks: int) -> Transport:
        is_send = operation == "send"
        if not (self.are_on_one if is_send else num_ranks <= self.num_near):
            return Transport.NETWORK
        if self.device == "cuda":
            return Transport.NCCL
        return Transport.LOOPBACK if is_send else Transport.SHARED_MEMORY


def _num_rounds(num_ranks: int) -> int:
    return (num_ranks - 1).bit_length()


def _leaving_share(operation: str, num_ranks: int) -> float:
    """Returns the share of the timed tensor that leaves each of the ranks."""
    if operation == "send":
        return 1.0
    return (2 if operation == "all_reduce" else 1) * (num_ranks - 1) / num_ranks
