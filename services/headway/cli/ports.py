"""TCP ports of this machine."""

import errno
import random
import socket
from contextlib import suppress

from headway.core.errors import AlreadyExistsError, InvalidArgumentError

# Below the ports that Linux gives to whoever binds 0, as every other process of a stack does: one from there could be
# taken again before the gateway binds it.
_FIRST_PORT, _LAST_PORT = 16384, 32767
_NUM_TRIES = 100


def take_port(host: str, port: int, *, option: str) -> int:
    """Returns `port` if it is free, or any free one for 0. Nothing is kept bound: the gateway binds it a moment later.

    Raises:
        AlreadyExistsError: something listens there already.
        InvalidArgumentError: `host` is not an address of this machine, or the port needs privileges.
    """
    if port == 0:
        for _ in range(_NUM_TRIES):
            with suppress(AlreadyExistsError):
                return take_port(host, random.randint(_FIRST_PORT, _LAST_PORT), option=option)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            return int(probe.getsockname()[1])
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise AlreadyExistsError(
                f"Port {port} of {host} is taken by another process.",
                hint=f"Choose another with {option}, or {option} 0 for any free one.",
                field=option,
            ) from None
        raise InvalidArgumentError(
            f"Cannot listen on {host}:{port}: {error.strerror}.",
            hint=f"Choose an address of this machine with --host and a port above 1023 with {option}.",
            field="--host",
        ) from None
