"""Picks the next token of each sequence from its logits."""

from dataclasses import dataclass

import torch
from torch import Tensor

from headway.core.request import TokenLogprobs
from headway.engine.sequence import Sequence
from headway.runner.draw import draw_tokens, token_weights, uniforms
from headway.runner.logprobs import token_logprobs
from headway.runner.penalties import apply_penalties, forbid_early_stops
from headway.runner.truncation import truncate


@dataclass(frozen=True, slots=True)
class Samples:
    """One token per row, and its log probabilities where they were asked for."""

    token_ids: list[int]
    logprobs: list[TokenLogprobs | None]


def sample(logits: Tensor, sequences: list[Sequence], *, eos_token_ids: tuple[int, ...]) -> Samples:
    """One token for each sequence.

    Args:
        logits: float32 [S, V], the last position of each sequence; changed in place.
        sequences: [S]; the token to sample comes after their `token_ids`.
        eos_token_ids: the model's own, for `min_tokens`.
    """
    logprob_rows = [row for row, seq in enumerate(sequences) if seq.sampling.num_logprobs is not None]
    raw = logits[logprob_rows] if logprob_rows else None
    forbid_early_stops(logits, sequences, eos_token_ids=eos_token_ids)
    if any(sequence.sampling.needs_history for sequence in sequences):
        apply_penalties(logits, sequences)
    token_ids = _choose(logits, sequences)
    logprobs: list[TokenLogprobs | None] = [None] * len(sequences)
    if raw is not None:
        num_top = [sequences[row].sampling.num_logprobs or 0 for row in logprob_rows]
        entries = token_logprobs(raw, token_ids[logprob_rows], num_top=num_top)
        for row, entry in zip(logprob_rows, entries, strict=True):
            logprobs[row] = entry
    return Samples(token_ids.tolist(), logprobs)


def _choose(logits: Tensor, sequences: list[Sequence]) -> Tensor:
    """The best token of greedy rows, a drawn one of the others, int64 [S]."""
    random_rows = [row for row, seq in enumerate(sequences) if seq.sampling.temperature > 0]
    if len(random_rows) == len(sequences):
        return _draw(logits, sequences)
    token_ids = argmax(logits)
    if random_rows:
        token_ids[random_rows] = _draw(logits[random_rows], [sequences[row] for row in random_rows])
    return token_ids


def _draw(logits: Tensor, sequences: list[Sequence]) -> Tensor:
    params = [sequence.sampling for sequence in sequences]
    weights = token_weights(logits, logits.new_tensor([p.temperature for p in params]))
    truncate(weights, params, vocab_size=logits.shape[1])
    uniform = uniforms([p.seed for p in params], [sequence.num_output_tokens for sequence in sequences])
    return draw_tokens(weights, torch.from_numpy(uniform).to(logits.device))


def argmax(logits: Tensor) -> Tensor:
    """Row-wise argmax; NumPy's is vectorised and on the CPU five times as fast as PyTorch's."""
    if logits.device.type == "cpu":
        return torch.from_numpy(logits.numpy().argmax(axis=1))
    return logits.argmax(dim=1)
