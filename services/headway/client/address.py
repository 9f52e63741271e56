"""Finds where a client connects to, and with which key."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from headway.client.access import find_access
from headway.client.stack import find_stack
from headway.client.token import TOKEN_VARIABLE
from headway.core.tls_files import TlsFiles

CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    ("grpc.max_send_message_length", 64 * 1024 * 1024),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)

Metadata: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Address:
    """A gateway's gRPC endpoint (host:port) and the key that it asks for, empty for none.

    Attributes:
        token: the stack's own, which opens what is for operators; empty where it is not this user's.
        tls: the files of certificates that it is called with; None where calls are not encrypted.
    """

    endpoint: str
    api_key: str = ""
    token: str = ""
    tls: TlsFiles | None = None

    @property
    def metadata(self) -> Metadata:
        """Metadata to send with every call."""
        return (("authorization", f"Bearer {self.api_key}"),) if self.api_key else ()

    @property
    def operator_metadata(self) -> Metadata:
        """The same for calls that only operators may make."""
        return (("authorization", f"Bearer {self.token}"),) if self.token else self.metadata


def find_address(
    endpoint: str | None, *, api_key: str | None, state_dir: Path | None = None, tls_ca: Path | None = None
) -> Address:
    """The endpoint or the local stack that was named; else HEADWAY_ENDPOINT; else the default local stack.

    The key is the one given, HEADWAY_API_KEY, or the local stack's own; likewise the authority by which the gateway's
    certificate is checked. NotFoundError where no stack is found.
    """
    api_key = api_key or os.environ.get("HEADWAY_API_KEY")
    is_of_environment = endpoint is None and state_dir is None
    if is_of_environment:
        endpoint = os.environ.get("HEADWAY_ENDPOINT")
    if endpoint:
        token = os.environ.get(TOKEN_VARIABLE, "") if is_of_environment else ""
        tls = TlsFiles.of_environment(os.environ) if tls_ca is None else TlsFiles(ca=str(tls_ca))
        return Address(endpoint, api_key or "", token, tls)
    stack = find_stack(state_dir)
    access = find_access(state_dir)
    tls = access.tls if tls_ca is None else TlsFiles(ca=str(tls_ca))
    return Address(stack.grpc_endpoint, api_key or stack.api_key, access.token or "", tls)
