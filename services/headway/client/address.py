"""The address that a client connects to, and its credentials."""

import os
from dataclasses import dataclass
from pathlib import Path

from headway.client.stack import find_stack

CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    ("grpc.max_send_message_length", 64 * 1024 * 1024),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


@dataclass(frozen=True, slots=True)
class Address:
    """A gateway's gRPC endpoint (host:port) and the key that it asks for, empty for none."""

    endpoint: str
    api_key: str = ""

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Returns the metadata to send with every call."""
        return (("authorization", f"Bearer {self.api_key}"),) if self.api_key else ()


def find_address(endpoint: str | None, *, api_key: str | None, state_dir: Path | None = None) -> Address:
    """The endpoint or the local stack that was named; else HEADWAY_ENDPOINT; else the default local stack.

    The key is the one given, HEADWAY_API_KEY, or the local stack's own. NotFoundError where no stack is found.
    """
    api_key = api_key or os.environ.get("HEADWAY_API_KEY")
    if endpoint is None and state_dir is None:
        endpoint = os.environ.get("HEADWAY_ENDPOINT")
    if endpoint:
        return Address(endpoint, api_key or "")
    stack = find_stack(state_dir)
    return Address(stack.grpc_endpoint, api_key or stack.api_key)
