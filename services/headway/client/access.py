"""What commands call the services of a stack with: its token, and its certificates where calls are encrypted."""

import os
from dataclasses import dataclass
from pathlib import Path

from headway.client.stack import default_state_dir, read_stack
from headway.client.token import find_token
from headway.core.tls_files import TlsFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The token that goes with every call, and the files of certificates; None for none."""

    token: str | None = None
    tls: TlsFiles | None = None


def find_access(state_dir: Path | None = None) -> Access:
    """The access to the stack that `find_address` finds."""
    return Access(token=find_token(state_dir), tls=find_tls(state_dir))


def find_tls(state_dir: Path | None = None) -> TlsFiles | None:
    """The certificates of the stack that `find_address` finds: as its state directory says, else those that the
    environment names."""
    if state_dir is None and os.environ.get("HEADWAY_ENDPOINT"):
        return TlsFiles.of_environment(os.environ)
    stack = read_stack(state_dir or default_state_dir())
    return TlsFiles.of_environment(os.environ) if stack is None else stack.tls
