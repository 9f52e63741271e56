"""Changes of logits that depend on a sequence's tokens: penalties, and stop tokens that are not allowed yet."""

from array import array

import numpy as np
import torch
from torch import Tensor

from headway.engine.sequence import Sequence


def forbid_early_stops(logits: Tensor, sequences: list[Sequence], *, eos_token_ids: tuple[int, ...]) -> None:
    """Sets the tokens that would end a sequence before its `min_tokens` to -inf, in place.

    A model's end-of-sequence ids do not end a sequence with `ignore_eos`, so they stay allowed there.
    """
    for row, sequence in enumerate(sequences):
        params = sequence.sampling
        if sequence.num_output_tokens < params.min_tokens:
            stops = params.stop_token_ids if params.ignore_eos else params.stop_token_ids + eos_token_ids
            logits[row, [token for token in stops if token < logits.shape[1]]] = -torch.inf


def apply_penalties(logits: Tensor, sequences: list[Sequence]) -> None:
    """Lowers, in place, the logits of tokens that a sequence already holds.

    Repetition divides positive logits and multiplies negative ones, for tokens of prompt and output; frequency
    subtracts once per occurrence in the output, presence once.
    """
    rows = [row for row, sequence in enumerate(sequences) if sequence.sampling.needs_history]
    _penalise_repetition(logits, rows, sequences)
    _penalise_output(logits, rows, sequences)


def _penalise_repetition(logits: Tensor, rows: list[int], sequences: list[Sequence]) -> None:
    rows = [row for row in rows if sequences[row].sampling.repetition_penalty != 1.0]
    if not rows:
        return
    owners, tokens = _flatten(rows, [sequences[row].token_ids for row in rows], logits.device)
    penalty = _spread(logits, [seq.sampling.repetition_penalty for seq in sequences], owners)
    values = logits[owners, tokens]
    # A token that occurs twice is written twice, with the same value.
    logits[owners, tokens] = torch.where(values > 0, values / penalty, values * penalty)


def _penalise_output(logits: Tensor, rows: list[int], sequences: list[Sequence]) -> None:
    rows = [row for row in rows if sequences[row].num_output_tokens]
    if not rows:
        return
    owners, tokens = _flatten(rows, [list(sequences[row].output_token_ids) for row in rows], logits.device)
    presence = _spread(logits, [seq.sampling.presence_penalty for seq in sequences], owners)
    logits[owners, tokens] = logits[owners, tokens] - presence
    frequency = _spread(logits, [seq.sampling.frequency_penalty for seq in sequences], owners)
    logits.index_put_((owners, tokens), -frequency, accumulate=True)


def _flatten(rows: list[int], token_lists: list[list[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Row and token of every entry of the lists, both [N] int64."""
    flat = array("q")
    for tokens in token_lists:
        flat.fromlist(tokens)
    owners = np.repeat(np.array(rows, np.int64), [len(tokens) for tokens in token_lists])
    return torch.from_numpy(owners).to(device), torch.frombuffer(flat, dtype=torch.int64).to(device)


def _spread(logits: Tensor, values: list[float], owners: Tensor) -> Tensor:
    return logits.new_tensor(values)[owners]
