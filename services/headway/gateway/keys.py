"""Checks API keys."""

import hmac
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from typing import TypeVar

from headway.core.api_key import hash_of, hashed_key
from headway.core.errors import UnauthenticatedError
from headway.gateway.key_ring import KeyRing

T = TypeVar("T", str, bytes)

_SCHEME = "bearer "


class ApiKeys:
    """The keys that clients may use, as they are or hashed, besides those of the ring; none lets every client in."""

    def __init__(self, keys: Sequence[str], *, ring: KeyRing) -> None:
        self._keys = list(map(hashed_key, keys))
        self._ring = ring

    @property
    def asks(self) -> bool:
        """Whether clients need a key."""
        return bool(self._keys) or self._ring.asks

    def recognise(self, authorization: str) -> None:
        """Raises as `check` does of a key that opens nothing, and counts nothing."""
        is_known = _is_among(self._keys, authorization) or self._ring.find(hash_of(token_of(authorization))) is not None
        if self.asks and not is_known:
            self.check(authorization)

    def check(self, authorization: str) -> None:
        """Lets a request in, and counts it.

        Args:
            authorization: the header's value.

        Raises:
            UnauthenticatedError: it holds no known key.
            ResourceExhaustedError, UnavailableError: see `KeyRing.admit`.
        """
        if not self.asks:
            return
        if not authorization:
            raise UnauthenticatedError("The request carries no API key.", hint="Send 'Authorization: Bearer KEY'.")
        if not _is_among(self._keys, authorization):
            self._ring.admit(hash_of(token_of(authorization)))


class OperatorKeys:
    """The keys of those who run the stack: its token, and those that they have chosen.

    Args:
        guards_paths: whether metrics, documentation and the state of the cluster ask for one.
        clients: where these need keys, the state of the cluster asks for one, too.
        ring: of which those that were made for operators open it all.
    """

    def __init__(self, keys: Sequence[str], *, guards_paths: bool, clients: ApiKeys, ring: KeyRing) -> None:
        self._keys = list(map(hashed_key, keys))
        self._guards_paths = guards_paths
        self._clients = clients
        self._ring = ring

    def check_path(self, authorization: str) -> None:
        """UnauthenticatedError unless metrics and documentation are for whoever asks so."""
        if self._guards_paths:
            self._check(authorization)

    def check_status(self, authorization: str) -> None:
        """UnauthenticatedError unless the state of the cluster is for whoever asks so."""
        if self._guards_paths or self._clients.asks:
            self._check(authorization)

    def _check(self, authorization: str) -> None:
        made = self._ring.find(hash_of(token_of(authorization)))
        if not _is_among(self._keys, authorization) and not (made is not None and made.is_admin):
            raise UnauthenticatedError(
                "This is for the operators of the server.",
                hint="Send the stack's token, from the file auth-token of its state directory, or an operator's key "
                "(HEADWAY_ADMIN_KEYS, or `headway key create --admin`), as 'Authorization: Bearer KEY'.",
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
