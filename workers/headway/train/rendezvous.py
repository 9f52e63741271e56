"""Where the ranks of a gang meet: rank 0 keeps a store that all others reach at its address."""

import os
import socket
from dataclasses import dataclass
from datetime import timedelta

import psutil
import torch.distributed as dist

from headway.core.errors import UnavailableError

LOOPBACK = "127.0.0.1"
_TIMEOUT = timedelta(seconds=300)  # a machine that does much else takes long to start processes
_BACKLOG = 1024
_GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendezvous:
    """The address of rank 0, as the other ranks reach it."""

    host: str
    port: int

    def meet(self, rank: int, world: int, *, listener: socket.socket | None = None) -> dist.Store:
        """Connects a rank to the store, and has gloo use the network by which it is reached.

        Args:
            listener: of rank 0, which listens at this address and is given up to the store; None for all others.

        Raises:
            UnavailableError: rank 0 does not answer.
        """
        try:
            store = dist.TCPStore(
                self.host,
                self.port,
                world,
                listener is not None,
                _TIMEOUT,
                wait_for_workers=False,
                master_listen_fd=None if listener is None else listener.detach(),
            )
        except dist.DistError as error:
            raise UnavailableError(f"Rank {rank} does not reach rank 0 at {self.host}:{self.port}: {error}") from error
        os.environ.setdefault(_GLOO_INTERFACE, _interface(_own_address(self)))
        return store


def listen(host: str, *, port: int = 0) -> tuple[socket.socket, Rendezvous]:
    """Opens a port at an address of this machine, 0 for a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    return listener, Rendezvous(host=host, port=listener.getsockname()[1])


def _own_address(rendezvous: Rendezvous) -> str:
    """This machine's, in the network of that address."""
    family, kind, _, _, address = socket.getaddrinfo(rendezvous.host, rendezvous.port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)  # sends nothing
        found: str = probe.getsockname()[0]
    return found


def _interface(address: str) -> str:
    """The network interface that has an address; names the ones there are where none has it."""
    interfaces = psutil.net_if_addrs()
    for name, addresses in interfaces.items():
        if any(each.address.partition("%")[0] == address for each in addresses):
            return name
    raise UnavailableError(
        f"No network interface of this machine has the address {address}; there are {', '.join(interfaces)}.",
        hint=f"Set {_GLOO_INTERFACE} to the interface by which the machines reach each other.",
    )
