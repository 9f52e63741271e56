"""The rendezvous where the ranks of a group meet, and tell each other that they have loaded."""

import os
import socket
import time
import uuid
from collections.abc import Callable
from datetime import timedelta

import psutil
import torch.distributed as dist

from headway.core.errors import CancelledError, FailedPreconditionError, UnavailableError
from headway.runner.parallel.fault import reason

_CONNECT_TIMEOUT = timedelta(seconds=5)
_POLL_S = 0.05
_LOADED = b"loaded"


class Rendezvous:
    """A small store in the leader's process, which the other ranks reach by its address.

    It also says which of the machine's interfaces leads to the leader; torch would ask for the host's name, which need
    not have an address.

    Attributes:
        epoch: of this run of the group; its keys have it in front.
        number: of the model that is being loaded; the group's first has 0.
    """

    def __init__(self, store: dist.TCPStore, *, epoch: str, number: int = 0) -> None:
        self.store: dist.Store = store
        self.epoch = epoch
        self.number = number
        self._server = store
        self._loads = dist.PrefixStore(f"{epoch}/load/{number}", store)
        interface = _interface_towards(store.host)
        os.environ["GLOO_SOCKET_IFNAME"] = interface
        os.environ["NCCL_SOCKET_IFNAME"] = interface

    @classmethod
    def host(cls, host: str) -> "Rendezvous":
        """Opens a new one, reached at `host` only."""
        with socket.create_server((host, 0)) as server:
            port = server.getsockname()[1]
            store = dist.TCPStore(host, port, is_master=True, wait_for_workers=False, master_listen_fd=server.detach())
        return cls(store, epoch=uuid.uuid4().hex)

    @classmethod
    def at(cls, text: str) -> "Rendezvous":
        """The one that `str` gives; UnavailableError if it has gone."""
        address, number, epoch = text.split("/")
        host, _, port = address.rpartition(":")
        try:
            store = dist.TCPStore(host, int(port), timeout=_CONNECT_TIMEOUT, wait_for_workers=False)
            return cls(store, epoch=epoch, number=int(number))
        except RuntimeError as error:
            raise UnavailableError(f"Nobody is at the rendezvous {address}: {reason(error)}") from error

    def __str__(self) -> str:
        return f"{self._server.host}:{self._server.port}/{self.number}/{self.epoch}"

    def for_next(self) -> "Rendezvous":
        """The same for the group's next model."""
        return Rendezvous(self._server, epoch=self.epoch, number=self.number + 1)

    def report_loaded(self, rank: int) -> None:
        self._report(rank, _LOADED.decode())

    def report_failed(self, rank: int, fault: str) -> None:
        self._report(rank, f"Rank {rank} could not load: {fault}")

    def wait_all_loaded(self, num_ranks: int, *, is_cancelled: Callable[[], bool]) -> None:
        """
        Raises:
            FailedPreconditionError: a rank could not load; says why.
            CancelledError: `is_cancelled` said so first.
            UnavailableError: the leader's process has ended.
        """
        missing = [str(rank) for rank in range(num_ranks)]
        while missing:
            if is_cancelled():
                raise CancelledError("The load was cancelled while other ranks were loading.")
            try:
                reports = {rank: self._loads.get(rank) for rank in missing if self._loads.check([rank])}
            except RuntimeError as error:
                raise UnavailableError(f"The group's leader has gone: {reason(error)}") from error
            for report in reports.values():
                if report != _LOADED:
                    raise FailedPreconditionError(report.decode())
            missing = [rank for rank in missing if rank not in reports]
            if missing:
                time.sleep(_POLL_S)

    def _report(self, rank: int, report: str) -> None:
        try:
            self._loads.set(str(rank), report)
        except RuntimeError as error:
            raise UnavailableError(f"The group's leader has gone: {reason(error)}") from error


def _interface_towards(host: str) -> str:
    """Name of the interface through which this machine reaches `host`."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, 1, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)  # sends nothing
        own_address = probe.getsockname()[0]
    for name, addresses in psutil.net_if_addrs().items():
        if any(entry.address == own_address for entry in addresses):
            return name
    raise UnavailableError(f"No network interface has the address {own_address}, from which {host} is reached.")
