"""Guided decoding: which tokens lead on within the language of each sequence's guide."""

from collections import OrderedDict
from functools import cached_property
from pathlib import Path
from threading import Lock
from weakref import WeakKeyDictionary

import numpy as np
import torch
from llguidance import LLMatcher, LLTokenizer
from llguidance.numpy import fill_next_token_bitmask
from numpy.typing import NDArray
from torch import Tensor

from headway.core.grammar import LIMITS, grammar_of
from headway.core.request import Guide
from headway.engine.sequence import Sequence

_MAX_COMPILED = 64


class Guides:
    """Follows the guided sequences of one model; implements `headway.runner.constraints.GuideMasks`.

    Where a sequence stands in its language follows from its output alone, so it is right after a preemption, at
    another worker, and in a fork. It is forgotten with the sequence.

    `prepare` compiles a guide, and may do so in any thread; all else belongs to the engine's. Sequences start from
    copies of what it made, which cost next to nothing.

    The tokenizer is read when the first guide comes: 4 µs per token of the vocabulary, 0.6 s for 150,000.

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
        self._compiled: OrderedDict[Guide, LLMatcher] = OrderedDict()  # the last one is the latest that was asked for
        self._lock = Lock()  # of `_compiled`

    def prepare(self, guide: Guide) -> str:
        """Compiles a guide, once for all that ask for it, with its first mask. Returns why it cannot be followed; empty
        if it can.
        """
        matcher = self._matcher_of(guide)
        if not matcher.is_error():
            packed = np.frombuffer(matcher.compute_bitmask(), np.uint8)
            (first,) = np.unpackbits(packed, bitorder="little").nonzero()
            if not len(first):
                return "no text begins with a token of the model"
            matcher = matcher.deep_copy()
            matcher.consume_token(int(first[0]))  # what was too much for the mask is said by the token only
        return _fault(matcher)

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
            walk = self._walks[sequence] = _Walk(self._matcher_of(sequence.sampling.guide).deep_copy())
        return walk

    def _matcher_of(self, guide: Guide) -> LLMatcher:
        """The compiled guide; it is not to be moved."""
        with self._lock:
            matcher = self._compiled.get(guide)
            if matcher is not None:
                self._compiled.move_to_end(guide)
                return matcher
        matcher = LLMatcher(self._tokenizer, grammar_of(guide), log_level=0, limits=LIMITS)
        with self._lock:
            self._compiled[guide] = matcher
            while len(self._compiled) > _MAX_COMPILED:
                self._compiled.popitem(last=False)
        return matcher

    @cached_property
    def _tokenizer(self) -> LLTokenizer:
        text = self._tokenizer_file.read_text(encoding="utf-8")
        return LLTokenizer(text, n_vocab=self._vocab_size, eos_token=list(self._eos_token_ids))


class _Walk:
    """The state of one sequence in its guide's language."""

    __slots__ = ("_matcher", "_num_tokens")

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher
        self._num_tokens = 0

    @property
    def fault(self) -> str:
        return _fault(self._matcher)

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


def _fault(matcher: LLMatcher) -> str:
    """The first line of what the library says: an output that leaves the language, or a limit that is reached."""
    line = matcher.get_error().partition("\n")[0]
    return "nothing belongs to its language" if line == "NoExtensionBias" else line
