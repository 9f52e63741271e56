"""Sequenced events: applied in order, or not at all."""

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.kvcache.feed import BlockEvent, BlockUpdate, Feed, Position
from headway.kvcache.index import PrefixIndex

HASHES = tuple(bytes([i]) * 16 for i in range(8))


def stored(*numbers: int) -> tuple[BlockEvent, ...]:
    return tuple(BlockEvent(HASHES[number], stored=True) for number in numbers)


def update(
    sequence_number: int, events: tuple[BlockEvent, ...], *, snapshot: bool = False, epoch: str = "e"
) -> BlockUpdate:
    return BlockUpdate(epoch=epoch, sequence_number=sequence_number, snapshot=snapshot, events=events)


def make_feed() -> tuple[Feed, PrefixIndex]:
    index = PrefixIndex[str]()
    feed = Feed("worker-0", index)
    assert feed.resume_from == Position()
    assert feed.apply(update(2, stored(0, 1), snapshot=True))
    return feed, index


def test_events_that_follow_are_applied() -> None:
    feed, index = make_feed()
    assert feed.apply(update(4, (*stored(2), BlockEvent(HASHES[0], stored=False))))
    assert index.num_blocks("worker-0") == 2
    assert feed.resume_from == Position("e", 4)


def test_missing_events_are_noticed_and_a_snapshot_is_asked_for() -> None:
    feed, index = make_feed()
    assert not feed.apply(update(5, stored(2)))
    assert index.num_blocks("worker-0") == 2
    assert feed.resume_from == Position()
    assert feed.apply(update(5, stored(0, 1, 2), snapshot=True))
    assert (index.num_blocks("worker-0"), feed.num_snapshots, feed.num_drifted_blocks) == (3, 2, 0)


def test_repeated_events_are_no_less_a_gap() -> None:
    feed, _ = make_feed()
    assert not feed.apply(update(2, stored(1)))


def test_events_of_another_epoch_need_a_snapshot() -> None:
    feed, index = make_feed()
    assert not feed.apply(update(3, stored(2), epoch="f"))
    assert feed.apply(update(1, stored(2), snapshot=True, epoch="f"))
    assert (index.num_blocks("worker-0"), feed.num_drifted_blocks) == (1, 0)


def test_a_snapshot_that_shows_the_index_wrong_is_counted_as_drift() -> None:
    feed, _ = make_feed()
    feed.apply(update(2, stored(0, 3), snapshot=True))
    assert feed.num_drifted_blocks == 2


def test_events_that_were_not_seen_yet_are_no_drift() -> None:
    feed, _ = make_feed()
    feed.apply(update(4, stored(0, 3), snapshot=True))
    assert feed.num_drifted_blocks == 0


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    history=st.lists(st.tuples(st.integers(0, 7), st.booleans()), max_size=60),
    cuts=st.lists(st.integers(1, 7), max_size=20),
    lost=st.sets(st.integers(0, 20)),
)
def test_the_index_is_right_after_every_update_however_the_stream_is_cut_and_lost(
    history: list[tuple[int, bool]], cuts: list[int], lost: set[int]
) -> None:
    """`cuts` splits the history into messages, of which `lost` never arrive; a gap brings a snapshot."""
    index = PrefixIndex[str]()
    feed, held, number = Feed("worker-0", index), set[bytes](), 0
    feed.apply(update(0, (), snapshot=True))
    for message, size in enumerate([*cuts, len(history)]):
        events = tuple(BlockEvent(HASHES[key], stored=is_stored) for key, is_stored in history[number:][:size])
        for event in events:
            held.add(event.block_hash) if event.stored else held.discard(event.block_hash)
        number += len(events)
        if message in lost:
            continue
        if not feed.apply(update(number, events)):
            feed.apply(update(number, tuple(BlockEvent(key, stored=True) for key in held), snapshot=True))
        assert index.lookup(sorted(held), holders=["worker-0"]).get("worker-0", 0) == len(held)
        assert index.num_blocks("worker-0") == len(held)
        assert feed.num_drifted_blocks == 0
