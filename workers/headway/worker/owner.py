"""The owner of a loaded model, which hears how it fares."""

from typing import Protocol

from headway.core.line import QueuePolicy
from headway.encoder.group_line import GroupLine


class Owner(Protocol):
    """Hears on the event loop how a loaded model fares.

    Attributes:
        line: which of its models begins next, of those that answer in one pass.
        queue_policy: whose request is next, of all models.
    """

    line: GroupLine
    queue_policy: QueuePolicy

    def on_change(self) -> None:
        """Something that load reports tell has changed."""

    def on_crash(self) -> None:
        """The model's engine has crashed and computes nothing any more: the process should end and be restarted."""

    def on_release(self, model: str) -> None:
        """The leader of a rank's group has let it go: that model is not loaded any more."""
