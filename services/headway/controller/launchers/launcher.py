"""The launcher protocol: what the controller needs of the place where processes run."""

from typing import Protocol

from headway.controller.process import Handle, ProcessSpec


class Launcher(Protocol):
    """Starts and stops processes. A handle is all there is to know of one, so any launcher can go on from a record."""

    async def launch(self, spec: ProcessSpec) -> Handle:
        """Starts a process that outlives the controller."""

    async def running(self) -> list[Handle]:
        """Every run that lives here, whichever controller has launched it."""

    async def is_alive(self, handle: Handle) -> bool:
        """Cheap: asked ten times a second for every process."""

    async def stop(self, handle: Handle, *, grace_s: float) -> None:
        """Asks it to end, ends it after `grace_s`, and returns when it is gone."""

    async def last_words(self, handle: Handle) -> str:
        """Returns how a dead process ended and what it wrote last, in words."""
