"""Profiles that the plan rests on and a user has given as a file."""

import asyncio
from pathlib import Path

from headway.controller.clients.profiler import ProfilerClient
from headway.core.errors import InvalidArgumentError


class ProfileImport:
    """Has a file imported once, for a device of the catalogue."""

    def __init__(self, path: Path, *, hardware: str, profiler: ProfilerClient) -> None:
        self._path = path
        self._hardware = hardware
        self._profiler = profiler
        self._is_done = False

    async def run(self) -> None:
        """Returns when the profiles are stored.

        Raises:
            InvalidArgumentError: the file cannot be read, or is at fault.
            UnavailableError: the profiler or the store is not there yet.
        """
        if self._is_done:
            return
        try:
            content = await asyncio.to_thread(self._path.read_bytes)
        except OSError as error:
            raise InvalidArgumentError(
                f"{self._path} cannot be read: {error}.", hint="Name a file that exists.", field="--stage-profiles"
            ) from error
        await self._profiler.take_in(content, hardware=self._hardware)
        self._is_done = True
