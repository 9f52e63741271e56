"""Turns the samples of rows into the samples of scheduled sequences: the followers' tokens, or the verified drafts."""

from collections.abc import Iterator
from itertools import islice

from headway.engine.batch import Sample, ScheduledSequence


def take(scheduled: ScheduledSequence, samples: Iterator[Sample]) -> tuple[Sample, ...]:
    """A scheduled sequence's own, from the samples of the batch's rows; () where nothing is sampled."""
    if not scheduled.samples:
        return ()
    if scheduled.draft_token_ids:
        return (_verify(scheduled.draft_token_ids, tuple(islice(samples, len(scheduled.draft_token_ids) + 1))),)
    if not scheduled.followers:
        return (next(samples),)
    return tuple(islice(samples, len(scheduled.followers) + 1))


def _verify(draft_token_ids: tuple[int, ...], samples: tuple[Sample, ...]) -> Sample:
    """Returns all tokens up to the first that differs from its draft: each was sampled just as it would have been
    without drafts.

    Args:
        samples: the sample behind the last known token, then the one behind each draft.
    """
    num_accepted = 0
    for draft, sample in zip(draft_token_ids, samples, strict=False):
        if sample.token_ids != (draft,):
            break
        num_accepted += 1
    valid = samples[: num_accepted + 1]
    return Sample(
        token_ids=tuple(token for sample in valid for token in sample.token_ids),
        logprobs=tuple(entry for sample in valid for entry in sample.logprobs),
        error=samples[0].error,
    )
