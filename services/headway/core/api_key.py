"""API keys as they are kept: by their hash, so that whoever reads the store cannot use them."""

import hashlib
from dataclasses import dataclass
from enum import StrEnum

_SCHEME = "sha256:"
_NUM_DIGITS = 64


def hashed_key(key: str) -> str:
    """`sha256:HEX` of a key; what has that form is kept as it is.

    Keys are long and random: a hash that is quick to compute is as good as a slow one.
    """
    digits = key.removeprefix(_SCHEME)
    if key.startswith(_SCHEME) and len(digits) == _NUM_DIGITS and set(digits) <= set("0123456789abcdef"):
        return key
    return hash_of(key)


def hash_of(token: str) -> str:
    """`sha256:HEX` of what a client sent, whatever its form: a hash opens nothing."""
    return _SCHEME + hashlib.sha256(token.encode()).hexdigest()


class KeyState(StrEnum):
    """Whether a key opens anything."""

    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKeyRecord:
    """A key that was made while the stack ran. The key itself is kept nowhere.

    Attributes:
        key_id: its name, by which it is revoked; no secret.
        hashed: see `hash_of`; empty where what was kept cannot be read, and opens nothing.
        tenant: whose requests are sent with it; empty for nobody in particular.
        models: the models that it opens; empty for all.
        requests_per_minute: that it may be used for, at each gateway; None for any number.
        is_admin: whether it opens what is for operators.
        created_at_s, expires_at_s, revoked_at_s: seconds since 1970; None for never.
    """

    key_id: str
    hashed: str
    created_at_s: float
    tenant: str = ""
    models: tuple[str, ...] = ()
    requests_per_minute: int | None = None
    is_admin: bool = False
    expires_at_s: float | None = None
    revoked_at_s: float | None = None

    def state(self, now_s: float) -> KeyState:
        if self.revoked_at_s is not None:
            return KeyState.REVOKED
        return KeyState.EXPIRED if self.expires_at_s is not None and self.expires_at_s <= now_s else KeyState.ACTIVE
