"""A network of a process's own, in which servers can be cut off: what is sent to their port, and from it, is lost."""

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

_CLONE_NEWNET = 0x40000000
_LOCAL_PRIORITY = 1000  # of the rule that finds loopback; those that lose something come before


def isolate() -> str:
    """Moves this process, which is to have one thread, into a network namespace with nothing but loopback; what it
    starts is there as well. Returns why that cannot be; empty where it was done."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNET):
        return f"no network namespace can be made: {os.strerror(ctypes.get_errno())}"
    try:
        _ip("link", "set", "lo", "up")
        _ip("rule", "add", "pref", str(_LOCAL_PRIORITY), "lookup", "local")
        _ip("rule", "del", "pref", "0")
    except (OSError, subprocess.CalledProcessError) as error:
        return f"the network namespace cannot be set up: {error}"
    return ""


@contextmanager
def cut_off(port: int) -> Iterator[None]:
    """Connections to that port fall silent, and none can be made, until this is left."""
    selectors = [("ipproto", "tcp", direction, str(port)) for direction in ("dport", "sport")]
    for selector in selectors:
        _ip("rule", "add", "pref", "1", *selector, "blackhole")
    try:
        yield
    finally:
        for selector in selectors:
            _ip("rule", "del", "pref", "1", *selector, "blackhole")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
