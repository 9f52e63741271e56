"""The index against sets of hashes, one per worker, under random use."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headway.kvcache.index import PrefixIndex

WORKERS = tuple(f"worker-{i}" for i in range(5))
HASHES = tuple(bytes([i]) * 16 for i in range(8))
workers, hashes = st.sampled_from(WORKERS), st.sampled_from(HASHES)


class IndexMachine(RuleBasedStateMachine):
    """The oracle is a dict of sets; it measures prefixes by walking them."""

    def __init__(self) -> None:
        super().__init__()
        self.index = PrefixIndex[str]()
        self.held: dict[str, set[bytes]] = {}

    @rule(worker_id=workers, block_hash=hashes)
    def store(self, worker_id: str, block_hash: bytes) -> None:
        self.index.store(worker_id, block_hash)
        self.held.setdefault(worker_id, set()).add(block_hash)

    @rule(worker_id=workers, block_hash=hashes)
    def remove(self, worker_id: str, block_hash: bytes) -> None:
        self.index.remove(worker_id, block_hash)
        self.held.get(worker_id, set()).discard(block_hash)

    @rule(worker_id=workers, snapshot=st.sets(hashes))
    def replace(self, worker_id: str, snapshot: set[bytes]) -> None:
        num_changed = len(snapshot ^ self.held.get(worker_id, set()))
        assert self.index.replace(worker_id, snapshot) == num_changed
        self.held[worker_id] = set(snapshot)

    @rule(worker_id=workers)
    def forget(self, worker_id: str) -> None:
        self.index.forget(worker_id)
        self.held.pop(worker_id, None)

    @rule(prompt=st.lists(hashes, max_size=8), among=st.sets(workers))
    def lookup(self, prompt: list[bytes], among: set[str]) -> None:
        expected = {}
        for worker_id in among:
            held = self.held.get(worker_id, set())
            num = next((i for i, block_hash in enumerate(prompt) if block_hash not in held), len(prompt))
            if num:
                expected[worker_id] = num
        assert self.index.lookup(prompt, holders=among) == expected

    @invariant()
    def equals_the_oracle(self) -> None:
        self.index.check_integrity()
        assert self.index.num_distinct_blocks == len(set().union(*self.held.values()))
        for worker_id in WORKERS:
            assert self.index.num_blocks(worker_id) == len(self.held.get(worker_id, ()))


TestIndex = IndexMachine.TestCase
TestIndex.settings = settings(max_examples=80, stateful_step_count=40, deadline=None, derandomize=True)


def test_a_gap_in_the_prefix_ends_the_match() -> None:
    index = PrefixIndex[str]()
    for block_hash in (HASHES[0], HASHES[2]):
        index.store("worker-0", block_hash)
    assert index.lookup(HASHES[:3], holders=["worker-0"]) == {"worker-0": 1}


class CountingDict(dict[bytes, int]):
    """Counts how often it is asked."""

    num_gets = 0

    def get(self, key: bytes, default: int = 0) -> int:  # type: ignore[override]
        self.num_gets += 1
        return super().get(key, default)


def test_a_lookup_is_one_pass_over_the_prompt_for_all_holders_and_ends_with_the_longest_match() -> None:
    index, prompt = PrefixIndex[str](), [i.to_bytes(16) for i in range(256)]
    worker_ids = [f"worker-{i}" for i in range(64)]
    for number, worker_id in enumerate(worker_ids):
        for block_hash in prompt[: 2 * number]:
            index.store(worker_id, block_hash)
    index._holders = holders = CountingDict(index._holders)
    matches = index.lookup(prompt, holders=worker_ids)
    assert matches == {f"worker-{i}": 2 * i for i in range(1, 64)}
    assert holders.num_gets == 2 * 63 + 1, "each block once, and the first that nobody has"
