import random
import time

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


def test_a_step_of_64_long_sequences_takes_well_under_a_millisecond():
    draw = random.Random(0)
    indices = [index_of([draw.randrange(50) for _ in range(2000)]) for _ in range(64)]

    def step_s() -> float:
        started_s = time.perf_counter()
        for index in indices:
            index.extend((draw.randrange(50),))
            index.propose(4)
        return time.perf_counter() - started_s

    assert min(step_s() for _ in range(20)) < 1e-3
