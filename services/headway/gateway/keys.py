"""Checks API keys."""

import hmac
from collections.abc import Iterable, Sequence
from typing import TypeVar

from headway.core.errors import UnauthenticatedError

T = TypeVar("T", str, bytes)

_SCHEME = "bearer "


class ApiKeys:
    """The keys that clients may use; none lets every client in."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = [key.encode() for key in keys]

    def check(self, authorization: str) -> None:
        """`authorization` is the header's value; UnauthenticatedError unless it holds a known key."""
        if not self._keys:
            return
        if not authorization:
            raise UnauthenticatedError("The request carries no API key.", hint="Send 'Authorization: Bearer KEY'.")
        key = token_of(authorization).encode()
        # Every key is compared, in constant time, so that the time taken tells nothing.
        matches = [hmac.compare_digest(key, known) for known in self._keys]
        if not key or not any(matches):
            raise UnauthenticatedError("The API key is not valid.", hint="Ask the operator of this server for one.")


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
