"""What is known of a server's prefix cache."""

from collections.abc import Sequence
from typing import Protocol


class ServerCache(Protocol):
    """Tells the worker's log of block events what a server's cache stores and drops."""

    @property
    def num_blocks(self) -> int:
        """That it is believed to hold."""

    def start(self) -> None:
        """Begins, on the event loop."""

    async def stop(self) -> None:
        """Ends what runs."""

    def num_found(self, token_ids: Sequence[int], *, salt: str = "") -> int:
        """Leading tokens of a prompt that are there; its last one is always computed."""

    def store(self, token_ids: Sequence[int], *, salt: str = "") -> None:
        """These tokens of a request have been computed, one after the other from the first."""
