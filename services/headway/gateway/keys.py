"""Checks API keys."""

import hmac
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from typing import TypeVar

from headway.core.api_key import hash_of, hashed_key
from headway.core.errors import UnauthenticatedError

T = TypeVar("T", str, bytes)

_SCHEME = "bearer "


class ApiKeys:
    """The keys that clients may use, as they are or hashed; none lets every client in."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = list(map(hashed_key, keys))

    def check(self, authorization: str) -> None:
        """`authorization` is the header's value; UnauthenticatedError unless it holds a known key."""
        if not self._keys:
            return
        if not authorization:
            raise UnauthenticatedError("The request carries no API key.", hint="Send 'Authorization: Bearer KEY'.")
        if not _is_among(self._keys, authorization):
            raise UnauthenticatedError("The API key is not valid.", hint="Ask the operator of this server for one.")


class OperatorKeys:
    """The keys of those who run the stack: its token, and those that they have chosen.

    Args:
        guards_paths: whether metrics and documentation ask for one.
        guards_status: whether the state of the cluster does.
    """

    def __init__(self, keys: Sequence[str], *, guards_paths: bool, guards_status: bool) -> None:
        self._keys = list(map(hashed_key, keys))
        self._guards_paths = guards_paths
        self._guards_status = guards_status

    def check_path(self, authorization: str) -> None:
        """UnauthenticatedError unless metrics and documentation are for whoever asks so."""
        if self._guards_paths:
            self._check(authorization)

    def check_status(self, authorization: str) -> None:
        """UnauthenticatedError unless the state of the cluster is for whoever asks so."""
        if self._guards_status:
            self._check(authorization)

    def _check(self, authorization: str) -> None:
        if not _is_among(self._keys, authorization):
            raise UnauthenticatedError(
                "This is for the operators of the server.",
                hint="Send the stack's token, from the file auth-token of its state directory, or an operator's key "
                "(HEADWAY_ADMIN_KEYS), as 'Authorization: Bearer KEY'.",
            )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_among(keys: Sequence[str], authorization: str) -> bool:
    """Every key is compared, in constant time, so that the time taken tells nothing."""
    token = token_of(authorization)
    hashed = hash_of(token)
    matches = [hmac.compare_digest(hashed, known) for known in keys]
    return bool(token) and any(matches)


def token_of(authorization: str) -> str:
    """The key in the header's value; empty where it holds none."""
    is_bearer = authorization[: len(_SCHEME)].lower() == _SCHEME
    return authorization[len(_SCHEME) :].strip() if is_bearer else ""


def authorization_of(headers: Iterable[tuple[T, T]], *, name: T) -> T | None:
    """The one Authorization header; None where there is none.

    Two are refused with UnauthenticatedError: what is checked and what is billed must be the same.
    """
    found = [value for key, value in headers if key == name]
    if len(found) > 1:
        raise UnauthenticatedError("The request carries several Authorization headers.", hint="Send one.")
    return found[0] if found else None
