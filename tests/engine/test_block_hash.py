import pytest

from headway.core.block_hash import HASH_BYTES, block_hashes, extend_block_hashes

TOKENS = [*range(40), 2**31 - 1, 0]


@pytest.mark.parametrize(
    ("salt", "block_size", "golden"),
    [
        (b"", 16, ["724f387046a7ef1970878eae3ed5c2d2", "1148a82e68def7f8218a535f6893214a"]),
        (b"model-a", 16, ["e3ae09fdd89c249b1e746c8cb4bbc6c9", "dd7d501dde67282506606f8fece3cac0"]),
        (b"", 21, ["e1c198bde8b647ec85f3249cdb2263ee", "cd422c6b5d9c761c5032d94b3e916437"]),
    ],
)
def test_hashes_are_the_wire_format(salt: bytes, block_size: int, golden: list[str]) -> None:
    assert [h.hex() for h in block_hashes(TOKENS, block_size=block_size, salt=salt)] == golden


def test_a_partial_block_has_no_hash() -> None:
    assert block_hashes(TOKENS[:15], block_size=16) == []
    assert block_hashes([], block_size=16) == []
    assert len(block_hashes(TOKENS[:33], block_size=16)) == 2
    assert all(len(h) == HASH_BYTES for h in block_hashes(TOKENS, block_size=16))


def test_a_hash_covers_everything_before_its_block() -> None:
    original = block_hashes(TOKENS, block_size=8)
    for position in range(40):
        changed = [*TOKENS]
        changed[position] += 1
        hashes = block_hashes(changed, block_size=8)
        first_changed = position // 8
        assert hashes[:first_changed] == original[:first_changed]
        assert not set(hashes[first_changed:]) & set(original)


def test_extending_token_by_token_equals_hashing_at_once() -> None:
    hashes: list[bytes] = []
    for length in range(len(TOKENS) + 1):
        extend_block_hashes(hashes, TOKENS[:length], block_size=4, salt=b"s")
        assert hashes == block_hashes(TOKENS[:length], block_size=4, salt=b"s")


def test_a_salt_changes_every_hash() -> None:
    assert not set(block_hashes(TOKENS, block_size=8)) & set(block_hashes(TOKENS, block_size=8, salt=b"x"))


def test_equal_blocks_at_different_places_differ() -> None:
    assert len(set(block_hashes([7] * 64, block_size=16))) == 4
