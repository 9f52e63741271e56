import pytest

from headway.engine.host_tier import HostTier


def test_blocks_are_handed_out_until_all_are_referenced() -> None:
    tier = HostTier(2)
    assert {tier.take()[0], tier.take()[0]} == {0, 1}
    assert (tier.num_used_blocks, tier.num_available_blocks) == (2, 0)
    tier.drop(0)
    assert tier.take() == (0, None)
    tier.check_integrity([0, 1])


def test_named_content_stays_until_the_least_recently_used_gives_way() -> None:
    tier = HostTier(2)
    for name in (b"a", b"b"):
        block, _ = tier.take()
        tier.label(block, name)
        tier.drop(block)
    found = tier.find(b"a")
    assert found is not None
    tier.touch(found)
    _, dropped = tier.take()
    assert dropped == b"b"
    assert tier.find(b"a") == found
    assert tier.find(b"b") is None
    assert (tier.num_used_blocks, tier.num_cached_blocks, tier.num_free_blocks) == (1, 1, 0)


def test_referenced_content_does_not_give_way() -> None:
    tier = HostTier(1)
    block, _ = tier.take()
    tier.label(block, b"a")
    tier.drop(block)
    tier.reference(block)
    tier.reference(block)
    tier.drop(block)
    assert tier.num_available_blocks == 0
    tier.check_integrity([block])
    tier.drop(block)
    assert tier.find(b"a") == block
    assert tier.num_available_blocks == 1


def test_a_tier_of_no_blocks_has_no_room() -> None:
    tier = HostTier(0)
    assert (tier.num_used_blocks, tier.num_available_blocks) == (0, 0)
    tier.check_integrity([])


@pytest.mark.parametrize("references", [[], [0, 0], [1]])
def test_the_integrity_check_finds_wrong_references(references: list[int]) -> None:
    tier = HostTier(2)
    tier.label(tier.take()[0], b"a")
    with pytest.raises(AssertionError):
        tier.check_integrity(references)
