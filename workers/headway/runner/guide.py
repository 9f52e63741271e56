"""Guided decoding: which tokens lead on within the language of each sequence's guide."""

from functools import cached_property
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np
import torch
from llguidance import LLMatcher, LLTokenizer
from llguidance.numpy import fill_next_token_bitmask
from numpy.typing import NDArray
from torch import Tensor

from headway.core.grammar import grammar_of
from headway.core.request import Guide
from headway.engine.sequence import Sequence


class Guides:
    """Follows the guided sequences of one model; implements `headway.runner.constraints.GuideMasks`.

    Where a sequence stands in its language follows from its output alone, so it is right after a preemption, at
    another worker, and in a fork. It is forgotten with the sequence.

    The tokenizer is read when the first guided sequence comes: 4 µs per token of the vocabulary, 0.6 s for 150,000.

    Args:
        tokenizer_file: the model's `tokenizer.json`.
        vocab_size: of the model, not below the tokenizer's.
        eos_token_ids: the model's own; they are allowed where a text of the language is complete.
    """

    def __init__(self, tokenizer_file: Path, *, vocab_size: int, eos_token_ids: tuple[int, ...]) -> None:
        self._tokenizer_file = tokenizer_file
        self._vocab_size = vocab_size
        self._eos_token_ids = eos_token_ids
        self._walks: WeakKeyDictionary[Sequence, _Walk] = WeakKeyDictionary()

    def mask(self, rows: list[tuple[Sequence, tuple[int, ...]]]) -> Tensor:
        """Returns which tokens may come next, bool [R, V] on the CPU.

        Args:
            rows: guided sequences, each with tokens that are assumed to follow its own. Where these leave the
                language, anything goes: they are never accepted.
        """
        packed = np.zeros((len(rows), -(-self._vocab_size // 32)), np.int32)
        for index, (sequence, draft_token_ids) in enumerate(rows):
            walk = self._walk_of(sequence)
            walk.follow(sequence)
            walk.fill(packed, index, draft_token_ids=draft_token_ids)
        bits = np.unpackbits(packed.view(np.uint8), axis=1, count=self._vocab_size, bitorder="little")
        return torch.from_numpy(bits.view(np.bool_))

    def fault(self, sequence: Sequence) -> str:
        """Returns why a sequence that was masked before cannot go on; empty if it can."""
        return self._walk_of(sequence).fault

    def _walk_of(self, sequence: Sequence) -> "_Walk":
        walk = self._walks.get(sequence)
        if walk is None:
            assert sequence.sampling.guide is not None, "the sequence has no guide"
            walk = self._walks[sequence] = _Walk(sequence.sampling.guide, tokenizer=self._tokenizer)
        return walk

    @cached_property
    def _tokenizer(self) -> LLTokenizer:
        text = self._tokenizer_file.read_text(encoding="utf-8")
        return LLTokenizer(text, n_vocab=self._vocab_size, eos_token=list(self._eos_token_ids))


class _Walk:
    """The state of one sequence in its guide's language."""

    __slots__ = ("_matcher", "_num_tokens")

    def __init__(self, guide: Guide, *, tokenizer: LLTokenizer) -> None:
        self._matcher = LLMatcher(tokenizer, grammar_of(guide), log_level=0)
        self._num_tokens = 0

    @property
    def fault(self) -> str:
        """The first line of what the library says: an output that leaves the language, or a limit that is reached."""
        return self._matcher.get_error().partition("\n")[0]

    def follow(self, sequence: Sequence) -> None:
        """Takes the output tokens that came since the last time."""
        tokens = sequence.token_ids[sequence.num_prompt_tokens + self._num_tokens :]
        self._matcher.consume_tokens(tokens)
        self._num_tokens += len(tokens)

    def fill(self, packed: NDArray[np.int32], index: int, *, draft_token_ids: tuple[int, ...]) -> None:
        """Sets row `index` to what may follow the drafts, one bit for each token.

        A faulty matcher allows the end of the sequence only.
        """
        num_taken = self._matcher.try_consume_tokens(list(draft_token_ids))
        if num_taken < len(draft_token_ids):
            packed[index] = -1
        else:
            fill_next_token_bitmask(self._matcher, packed, index)
        if num_taken:
            self._matcher.rollback(num_taken)
