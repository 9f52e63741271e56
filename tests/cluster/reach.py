"""Which addresses take a TCP connection from where this runs, as a list in JSON.

Usage: python -m tests.cluster.reach HOST:PORT...; `reachable_from` runs it in the network namespace of another process.
"""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

_TIMEOUT_S = 8.0
"""After which an address is out of reach. A firewall that refuses says so at once, but only so often in a second."""


def command_in(pid: int, *arguments: str) -> list[str]:
    """A command of this program's Python, that is run in the network namespace of a process."""
    return ["nsenter", f"--net=/proc/{pid}/ns/net", sys.executable, *arguments]


def run_in(pid: int, *arguments: str) -> str:
    """What such a command writes."""
    result = subprocess.run(command_in(pid, *arguments), capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def reachable_from(pid: int, addresses: Sequence[str]) -> set[str]:
    """Those that a process of this machine reaches by its network."""
    return set(json.loads(run_in(pid, "-m", "tests.cluster.reach", *addresses)))


@contextmanager
def listening(pid: int, port: int) -> Iterator[None]:
    """Connections to that port of a process's network are taken meanwhile, or a moment after the block begins."""
    command = command_in(pid, "-m", "http.server", str(port))
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        server.kill()
        server.wait()


def _is_open(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def main(addresses: Sequence[str]) -> int:
    with ThreadPoolExecutor(len(addresses)) as pool:
        found = zip(addresses, pool.map(_is_open, addresses), strict=True)
        print(json.dumps([address for address, is_open in found if is_open]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
