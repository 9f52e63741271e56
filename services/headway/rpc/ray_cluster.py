"""The connection to a Ray cluster; Ray is imported only where it is asked for."""

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from headway.core.errors import FailedPreconditionError, UnavailableError

_CONNECT_TIMEOUT_S = 5.0


def require_ray() -> None:
    """FailedPreconditionError where Ray is not installed."""
    if find_spec("ray") is None:
        raise FailedPreconditionError(
            "Ray is not installed.", hint="Install it: pip install 'headway[ray]', on every machine.", field="ray"
        )


@contextmanager
def ray_cluster(address: str, *, shows_logs: bool = False) -> Iterator[Any]:
    """Connects to a cluster until the block ends, and gives the module `ray`.

    Args:
        address: HOST:PORT of its head, ray://HOST:PORT of its clients' server, 'auto' for the one that this machine is
            part of, or 'local' for one that is started here and ends with the block.
        shows_logs: whether this process writes what the cluster's processes write.

    Raises:
        FailedPreconditionError: Ray is not installed.
        UnavailableError: there is no cluster at that address.
    """
    require_ray()
    ray: Any = import_module("ray")
    _check_reachable(address)
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, log_to_driver=shows_logs, include_dashboard=False if address == "local" else None)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise _no_cluster(address, error) from error
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, before)  # Ray has put its own in its place
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Checks that somebody listens at HOST:PORT: otherwise Ray ends the whole process."""
    host, colon, port = address.rpartition(":")
    if not colon or "://" in address:
        return
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_TIMEOUT_S):
            pass
    except (OSError, ValueError) as error:
        raise _no_cluster(address, error) from error


def _no_cluster(address: str, error: Exception) -> UnavailableError:
    return UnavailableError(
        f"There is no Ray cluster at '{address}': {(str(error).strip() or 'no answer').splitlines()[0]}",
        hint="Start one with `ray start --head`, and give --ray auto there, or HOST:6379.",
        field="ray",
    )
