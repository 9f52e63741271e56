"""Logits that a request raises or lowers: its own bias, and penalties on tokens that the sequence already holds."""

from array import array

import numpy as np
import torch
from torch import Tensor

from headway.kernels import to_device
from headway.runner.row import Row


def apply_bias(logits: Tensor, rows: list[Row]) -> None:
    """Adds each request's `logit_bias`, in place."""
    for index, row in enumerate(rows):
        if row.sampling.logit_bias:
            bias = {token: value for token, value in row.sampling.logit_bias if token < logits.shape[1]}
            tokens = to_device(torch.tensor(list(bias), dtype=torch.int64), logits.device)
            values = to_device(torch.tensor(list(bias.values()), dtype=logits.dtype), logits.device)
            logits[index].index_add_(0, tokens, values)


def apply_penalties(logits: Tensor, rows: list[Row]) -> None:
    """Lowers, in place, the logits of tokens that a sequence already holds.

    Repetition divides positive logits and multiplies negative ones, for tokens of prompt and output; frequency
    subtracts once per occurrence in the output, presence once.
    """
    indices = [index for index, row in enumerate(rows) if row.sampling.needs_history]
    _penalise_repetition(logits, indices, rows)
    _penalise_output(logits, indices, rows)


def _penalise_repetition(logits: Tensor, indices: list[int], rows: list[Row]) -> None:
    indices = [index for index in indices if rows[index].sampling.repetition_penalty != 1.0]
    if not indices:
        return
    owners, tokens = _flatten(indices, [rows[index].token_ids for index in indices], logits.device)
    penalty = _spread(logits, [row.sampling.repetition_penalty for row in rows], owners)
    values = logits[owners, tokens]
    # A token that occurs twice is written twice, with the same value.
    logits[owners, tokens] = torch.where(values > 0, values / penalty, values * penalty)


def _penalise_output(logits: Tensor, indices: list[int], rows: list[Row]) -> None:
    indices = [index for index in indices if rows[index].num_output_tokens]
    if not indices:
        return
    owners, tokens = _flatten(indices, [rows[index].output_token_ids for index in indices], logits.device)
    presence = _spread(logits, [row.sampling.presence_penalty for row in rows], owners)
    logits[owners, tokens] = logits[owners, tokens] - presence
    frequency = _spread(logits, [row.sampling.frequency_penalty for row in rows], owners)
    logits.index_put_((owners, tokens), -frequency, accumulate=True)


def _flatten(indices: list[int], token_lists: list[list[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Row and token of every entry of the lists, both [N] int64."""
    flat = array("q")
    for tokens in token_lists:
        flat.fromlist(tokens)
    owners = np.repeat(np.array(indices, np.int64), [len(tokens) for tokens in token_lists])
    return torch.from_numpy(owners).to(device), torch.frombuffer(flat, dtype=torch.int64).to(device)


def _spread(logits: Tensor, values: list[float], owners: Tensor) -> Tensor:
    return logits.new_tensor(values)[owners]
