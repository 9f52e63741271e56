"""Limits each machine to one measurement at a time: two would slow each other down."""

import asyncio
from collections import defaultdict


class Machines:
    """A lock for each machine, in the order of asking."""

    def __init__(self) -> None:
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def lock(self, machine: str) -> asyncio.Lock:
        return self._locks[machine]


def machine_of(endpoint: str) -> str:
    """The host of a worker's address."""
    return endpoint.rpartition(":")[0]
