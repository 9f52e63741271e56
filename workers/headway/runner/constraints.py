"""Tokens that may not come next, set to -inf: stops that come too early, bad words, and what a guide rules out."""

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from headway.engine.sequence import Sequence
from headway.kernels import to_device
from headway.runner.row import Row


class GuideMasks(Protocol):
    """Knows which tokens lead on within each guide's language."""

    def mask(self, rows: list[tuple[Sequence, tuple[int, ...]]]) -> Tensor:
        """Returns which tokens may come next, bool [R, V] on the CPU.

        Args:
            rows: guided sequences, each with tokens that are assumed to follow its own.
        """

    def fault(self, sequence: Sequence) -> str:
        """Returns why a masked sequence cannot go on; empty if it can."""


def stop_token_ids(row: Row, *, eos_token_ids: tuple[int, ...]) -> tuple[int, ...]:
    """Tokens that end the row's sequence; the model's own do not with `ignore_eos`."""
    sampling = row.sampling
    return sampling.stop_token_ids if sampling.ignore_eos else sampling.stop_token_ids + eos_token_ids


def forbid_early_stops(logits: Tensor, rows: list[Row], *, eos_token_ids: tuple[int, ...]) -> None:
    """Forbids, in place, the tokens that would end a sequence before its `min_tokens`."""
    for index, row in enumerate(rows):
        if row.sampling.min_tokens and row.num_output_tokens < row.sampling.min_tokens:
            stops = [token for token in stop_token_ids(row, eos_token_ids=eos_token_ids) if token < logits.shape[1]]
            tokens = to_device(torch.tensor(stops, dtype=torch.int64), logits.device)
            logits[index].index_fill_(0, tokens, -torch.inf)


def forbid_bad_words(logits: Tensor, rows: list[Row], *, eos_token_ids: tuple[int, ...]) -> None:
    """Forbids, in place, the last token of each bad word whose others end prompt and output.

    The rules are those of transformers' `NoBadWordsLogitsProcessor`: words may begin in the prompt, and the model's
    end-of-sequence ids alone are no words.
    """
    for index, row in enumerate(rows):
        if row.sampling.bad_token_ids:
            last_tokens = [token for token in _last_tokens(row, eos_token_ids) if token < logits.shape[1]]
            logits[index, last_tokens] = -torch.inf


def forbid_unguided(logits: Tensor, rows: list[Row], *, guides: GuideMasks) -> None:
    """Forbids, in place, the tokens that would leave the language of a row's guide."""
    guided = [index for index, row in enumerate(rows) if row.sampling.guide is not None]
    if guided:
        allowed = guides.mask([(rows[index].sequence, rows[index].draft_token_ids) for index in guided])
        logits[guided] = logits[guided].masked_fill_(~allowed.to(logits.device), -torch.inf)


def _last_tokens(row: Row, eos_token_ids: tuple[int, ...]) -> Iterator[int]:
    words = row.sampling.bad_token_ids
    longest = max(len(word) for word in words) - 1
    end = [*row.sequence.token_ids[-longest:], *row.draft_token_ids][-longest:] if longest else []
    for *prefix, last in words:
        is_end = not prefix and last in eos_token_ids
        if not is_end and prefix == end[len(end) - len(prefix) :]:
            yield last
