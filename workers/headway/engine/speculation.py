"""Guesses of what a sequence says next, from what it has said before (prompt lookup decoding).

    ... the brown fox jumps over ... the brown
        ^^^^^^^^^ occurred before     ^^^^^^^^^ the end: "fox jumps over" is proposed

A guess costs nothing when it is wrong but the computation of its tokens: the runner verifies each one with the very
draw that would have been made without it, so the output stays the same.
"""

from collections.abc import Iterable

# A single token occurs before in almost any text, and says little about what follows.
_MIN_NGRAM = 2


class NgramIndex:
    """An index of where each n-gram of one sequence's tokens occurred last. It grows with the sequence.

    Keep one per sequence, extend it with the prompt and then with every output token, and ask it for proposals.
    Indexing a token takes about a microsecond, and so does a proposal.

    Args:
        max_ngram: the longest n-gram that is looked up; shorter ones are tried when longer ones are new.
    """

    def __init__(self, *, max_ngram: int) -> None:
        assert max_ngram >= 1, "an n-gram has at least one token"
        self._token_ids: list[int] = []
        # Longest first: n -> n-gram -> position of the token that followed its latest occurrence. The n-gram at the
        # very end is not in there, because nothing follows it yet.
        lengths = range(max_ngram, min(_MIN_NGRAM, max_ngram) - 1, -1)
        self._followers: dict[int, dict[tuple[int, ...], int]] = {length: {} for length in lengths}

    def __len__(self) -> int:
        """The number of tokens indexed."""
        return len(self._token_ids)

    def extend(self, token_ids: Iterable[int]) -> None:
        """Takes up the tokens that follow those it knows."""
        first = len(self._token_ids)
        self._token_ids.extend(token_ids)
        for length, followers in self._followers.items():
            start = max(first - length, 0)  # of the first n-gram that one of the new tokens follows
            tail = self._token_ids[start:]
            ngrams = zip(*(tail[offset:-1] for offset in range(length)), strict=False)
            followers.update(zip(ngrams, range(start + length, len(self._token_ids)), strict=True))

    def propose(self, num_tokens: int) -> tuple[int, ...]:
        """Proposes the next `num_tokens` tokens, or none when the last tokens have not occurred before.

        The latest occurrence is the one to follow, because texts repeat what is near. Where it runs into the end it
        goes on with its own proposals, which continues a loop of any period.
        """
        for length, followers in self._followers.items():
            position = followers.get(tuple(self._token_ids[-length:]))
            if position is not None:
                return self._read(position, num_tokens)
        return ()

    def _read(self, position: int, num_tokens: int) -> tuple[int, ...]:
        proposed = self._token_ids[position : position + num_tokens]
        period = len(self._token_ids) - position
        while len(proposed) < num_tokens:
            proposed.append(proposed[-period])
        return tuple(proposed)
