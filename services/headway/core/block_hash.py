"""The name of a block of tokens: a hash chain over full blocks, the same in every process.

The gateway, the router, the KV-cache service and the workers all hash prompts with this function, so it is a wire
format: the first block's parent is the hash of the salt, and each block's hash covers its parent's hash and its
token ids as little-endian 32-bit integers. Equal hashes mean equal tokens from the start of the sequence.
"""

import hashlib
import struct
from collections.abc import Sequence

HASH_BYTES = 16


def block_hashes(token_ids: Sequence[int], *, block_size: int, salt: bytes = b"", parent: bytes = b"") -> list[bytes]:
    """Hashes of the full blocks of `token_ids`, each `HASH_BYTES` long; a partial last block has none.

    Args:
        token_ids: in [0, 2**31).
        block_size: tokens per block.
        salt: keeps apart caches that must not be shared, such as two models'.
        parent: hash of the block before the first, which then covers the salt; empty where there is none.
    """
    if not parent:
        hashes: list[bytes] = []
        extend_block_hashes(hashes, token_ids, block_size=block_size, salt=salt)
        return hashes
    following = [parent]
    extend_block_hashes(following, [*([0] * block_size), *token_ids], block_size=block_size)
    return following[1:]


def extend_block_hashes(hashes: list[bytes], token_ids: Sequence[int], *, block_size: int, salt: bytes = b"") -> None:
    """Appends to `hashes`, which holds the hashes of the leading blocks, those of the blocks that are full by now."""
    num_known_tokens = len(hashes) * block_size
    num_full_tokens = len(token_ids) - len(token_ids) % block_size
    if num_known_tokens >= num_full_tokens:
        return
    new_tokens = token_ids[num_known_tokens:num_full_tokens]
    packed = struct.pack(f"<{len(new_tokens)}i", *new_tokens)
    parent = hashes[-1] if hashes else _hash(salt)
    num_block_bytes = 4 * block_size
    for start in range(0, len(packed), num_block_bytes):
        parent = _hash(parent + packed[start : start + num_block_bytes])
        hashes.append(parent)


def _hash(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=HASH_BYTES).digest()
