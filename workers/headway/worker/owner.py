"""Who a loaded model belongs to."""

from typing import Protocol


class Owner(Protocol):
    """Hears on the event loop how a loaded model fares."""

    def on_change(self) -> None:
        """Something that load reports tell has changed."""

    def on_crash(self) -> None:
        """It computes nothing any more: the process should end and be restarted."""

    def on_release(self) -> None:
        """The leader of a rank's group has let it go: nothing is loaded any more."""
