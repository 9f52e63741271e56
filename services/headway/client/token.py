"""The token that every internal call of a stack carries: the file `auth-token` in its state directory."""

import os
import secrets
from pathlib import Path

from headway.client.private_file import replace_private_file
from headway.client.stack import default_state_dir, unreadable
from headway.core.errors import InvalidArgumentError

TOKEN_FILE = "auth-token"
TOKEN_VARIABLE = "HEADWAY_AUTH_TOKEN"
_NUM_BYTES = 32
_NOT_THE_OWNER = 0o077


def make_token(state_dir: Path) -> str:
    """Makes the token of a stack that is about to start: HEADWAY_AUTH_TOKEN, or the one of the stack before, or a new
    one.

    It is kept in a file that only its owner may read. One that others could read is replaced.
    """
    kept = _kept_token(state_dir / TOKEN_FILE)
    token = os.environ.get(TOKEN_VARIABLE) or kept or secrets.token_hex(_NUM_BYTES)
    if not token.isascii() or not token.isprintable():
        raise InvalidArgumentError(
            f"{TOKEN_VARIABLE} has characters that cannot be sent.",
            hint="Use printable ASCII, or unset it: a token is made.",
            field=TOKEN_VARIABLE,
        )
    if token != kept:
        _write(state_dir, token)
    return token


def read_token(state_dir: Path) -> str | None:
    """Reads the token of the stack whose state is there; None where it has none. UnauthenticatedError for other
    users."""
    path = state_dir / TOKEN_FILE
    try:
        return path.read_text().strip() or None
    except FileNotFoundError:
        return None
    except PermissionError:
        raise unreadable(path) from None


def find_token(state_dir: Path | None = None) -> str | None:
    """Finds the token of the stack that `find_address` finds: of a state directory its file, else HEADWAY_AUTH_TOKEN.

    The token of the local stack is never sent to a stack elsewhere, which HEADWAY_ENDPOINT names.
    """
    of_environment = os.environ.get(TOKEN_VARIABLE)
    if state_dir is None and os.environ.get("HEADWAY_ENDPOINT"):
        return of_environment
    return read_token(state_dir or default_state_dir()) or of_environment


def _kept_token(path: Path) -> str | None:
    try:
        is_secret = path.stat().st_mode & _NOT_THE_OWNER == 0
        return path.read_text().strip() or None if is_secret else None
    except FileNotFoundError:
        return None


def _write(state_dir: Path, token: str) -> None:
    replace_private_file(state_dir / TOKEN_FILE, f"{token}\n".encode())
