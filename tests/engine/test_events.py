import threading

from headway.engine.events import BlockEventLog, BlockRemoved, BlockStored, EventBatch


def name(number: int) -> bytes:
    return number.to_bytes(16, "big")


def test_events_come_numbered_and_in_order() -> None:
    log = BlockEventLog()
    assert log.since(0) == EventBatch((), 0)
    log.record_stored(name(1), parent_hash=b"")
    log.record_stored(name(2), parent_hash=name(1))
    log.record_removed(name(2))
    stored, child, removed = BlockStored(name(1), b""), BlockStored(name(2), name(1)), BlockRemoved(name(2))
    assert log.since(0) == EventBatch((stored, child, removed), 3)
    assert log.since(2) == EventBatch((removed,), 3)
    assert log.since(3) == EventBatch((), 3)


def test_a_reader_behind_the_ring_is_sent_to_a_snapshot() -> None:
    log = BlockEventLog(num_events=2)
    for number in range(1, 6):
        log.record_stored(name(number), parent_hash=b"")
    assert log.since(2) is None
    batch = log.since(3)
    assert batch is not None
    assert [event.block_hash for event in batch.events] == [name(4), name(5)]
    snapshot = log.snapshot()
    assert [block.block_hash for block in snapshot.blocks] == [name(n) for n in range(1, 6)]
    assert snapshot.last_sequence_number == 5


def test_a_reader_from_before_a_restart_is_sent_to_a_snapshot() -> None:
    assert BlockEventLog().since(17) is None


def test_a_snapshot_holds_what_was_not_removed() -> None:
    log = BlockEventLog()
    for number in (1, 2, 3):
        log.record_stored(name(number), parent_hash=b"")
    log.record_removed(name(2))
    assert [block.block_hash for block in log.snapshot().blocks] == [name(1), name(3)]


def test_a_reader_in_another_thread_ends_with_the_writers_set() -> None:
    log = BlockEventLog(num_events=64)  # small, so that the reader falls behind now and then
    done = threading.Event()

    def write() -> None:
        for number in range(20_000):
            log.record_stored(name(number), parent_hash=b"")
            if number >= 50:
                log.record_removed(name(number - 50))
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    known: set[bytes] = set()
    applied, num_snapshots = 0, 0
    while True:
        is_last_round = done.is_set()
        batch = log.since(applied)
        if batch is None:
            snapshot = log.snapshot()
            known, applied = {block.block_hash for block in snapshot.blocks}, snapshot.last_sequence_number
            num_snapshots += 1
        else:
            for event in batch.events:
                if isinstance(event, BlockStored):
                    assert event.block_hash not in known
                    known.add(event.block_hash)
                else:
                    known.remove(event.block_hash)
            applied = batch.last_sequence_number
        if is_last_round and batch is not None:
            break
    writer.join()
    assert known == {name(number) for number in range(19_950, 20_000)}
    assert applied == 20_000 + 19_950
