"""API keys as they are kept: by their hash, so that whoever reads the store cannot use them."""

import hashlib

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
