import random
from collections.abc import Iterable

import pytest

from headway.engine.speculation import NgramIndex


def index_of(token_ids: list[int], *, max_ngram: int = 3) -> NgramIndex:
    index = NgramIndex(max_ngram=max_ngram)
    index.extend(token_ids)
    return index


def proposed_by_definition(token_ids: list[int], *, max_ngram: int, num_tokens: int) -> tuple[int, ...]:
    """Searches backwards for the end, longest n-gram first."""
    for length in range(max_ngram, min(2, max_ngram) - 1, -1):
        end = token_ids[-length:]
        for start in range(len(token_ids) - length - 1, -1, -1):
            if token_ids[start : start + length] == end:
                text = list(token_ids)
                for position in range(start + length, start + length + num_tokens):
                    text.append(text[position])
                return tuple(text[len(token_ids) :])
    return ()


def test_what_followed_the_end_before_is_proposed():
    assert index_of([1, 2, 3, 4, 5, 9, 1, 2, 3]).propose(2) == (4, 5)


def test_nothing_is_proposed_for_an_end_that_is_new():
    assert index_of([1, 2, 3, 4]).propose(3) == ()
    assert index_of([]).propose(3) == ()
    assert index_of([7]).propose(3) == ()


def test_a_single_common_token_is_no_occurrence():
    assert index_of([1, 2, 3, 4, 1]).propose(2) == ()
    assert index_of([1, 2, 3, 4, 1], max_ngram=1).propose(2) == (2, 3)


def test_the_longest_match_wins_over_a_later_one():
    assert index_of([1, 2, 3, 4, 8, 2, 3, 5, 1, 2, 3]).propose(1) == (4,)


def test_of_equal_matches_the_latest_wins():
    assert index_of([1, 2, 3, 1, 2, 4, 1, 2]).propose(1) == (4,)


def test_a_loop_goes_on_beyond_the_end():
    assert index_of([5, 1, 2, 3, 1, 2, 3, 1, 2]).propose(7) == (3, 1, 2, 3, 1, 2, 3)
    assert index_of([4, 4, 4]).propose(4) == (4, 4, 4, 4)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("max_ngram", [1, 2, 3, 5])
def test_proposals_equal_a_search_however_the_tokens_arrive(seed, max_ngram):
    draw = random.Random(seed)
    token_ids = [draw.randrange(4) for _ in range(60)]
    index, seen = NgramIndex(max_ngram=max_ngram), 0
    while seen < len(token_ids):
        count = draw.choice((1, 1, 2, 7))
        index.extend(token_ids[seen : seen + count])
        seen = len(index)
        expected = proposed_by_definition(token_ids[:seen], max_ngram=max_ngram, num_tokens=5)
        assert index.propose(5) == expected


class CountingList(list[int]):
    """Counts the tokens that are read from it."""

    num_read = 0

    def __getitem__(self, key):
        found = super().__getitem__(key)
        self.num_read += len(found) if isinstance(key, slice) else 1
        return found

    def __iter__(self):
        for token_id in super().__iter__():
            self.num_read += 1
            yield token_id


class CountingDict(dict[tuple[int, ...], int]):
    """Counts the n-grams that are written to it."""

    num_written = 0

    def update(self, entries: Iterable[tuple[tuple[int, ...], int]]) -> None:
        before = list(entries)
        self.num_written += len(before)
        super().update(before)


@pytest.mark.parametrize("num_tokens", [20, 200, 20_000])
def test_a_step_of_a_sequence_costs_the_same_however_long_it_is(num_tokens):
    draw = random.Random(0)
    index = index_of([draw.randrange(2) for _ in range(num_tokens)])
    index._token_ids = token_ids = CountingList(index._token_ids)
    index._followers = followers = {length: CountingDict(known) for length, known in index._followers.items()}
    for _ in range(8):
        index.extend((draw.randrange(2),))
    assert len(token_ids) == num_tokens + 8
    assert {length: known.num_written for length, known in followers.items()} == {3: 8, 2: 8}
    assert token_ids.num_read == 8 * (4 + 3), "per token, and n-gram length, the n-gram before it and itself"
    token_ids.num_read = 0
    assert len(index.propose(4)) == 4
    assert token_ids.num_read <= 3 + 2 + 4, "the end once per length, and the proposal"
