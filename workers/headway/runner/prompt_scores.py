"""Log probabilities of prompts."""

from collections.abc import Iterable, Iterator
from itertools import islice

import torch
from torch import Tensor

from headway.core.request import TokenLogprobs
from headway.engine.batch import ScheduledSequence
from headway.runner.inputs import num_scored_tokens
from headway.runner.logprobs import LogprobEntries


def score_prompts(
    scheduled_sequences: list[ScheduledSequence], logits: Iterable[Tensor]
) -> list[tuple[TokenLogprobs, ...]]:
    """Returns for each scheduled sequence the entries of the prompt tokens that follow its own; () where they are not
    asked for.

    Args:
        logits: the logits of the step's scored rows, float32 [n, V], some rows at a time.
    """
    counts = [num_scored_tokens(scheduled) for scheduled in scheduled_sequences]
    targets: list[int] = []
    num_top: list[int] = []
    for scheduled, count in zip(scheduled_sequences, counts, strict=True):
        first = scheduled.start + 1
        targets += scheduled.sequence.token_ids[first : first + count]
        num_top += [scheduled.sequence.sampling.num_prompt_logprobs or 0] * count
    entries = _entries(targets, num_top, logits)
    scores = [tuple(islice(entries, count)) for count in counts]
    assert next(entries, None) is None, "as many rows were computed as are scored"
    return scores


def _entries(targets: list[int], num_top: list[int], logits: Iterable[Tensor]) -> Iterator[TokenLogprobs]:
    start = 0
    for part in logits:
        end = start + len(part)
        token_ids = torch.tensor(targets[start:end], device=part.device)
        yield from LogprobEntries(part, token_ids, num_top=num_top[start:end]).read()
        start = end
