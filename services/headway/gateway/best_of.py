"""Best of several samples: the client gets those that the model itself finds most likely."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

from headway.gateway.job import Delta


async def best_of(
    samples: AsyncGenerator[list[Delta], None], *, n: int, first_index: int, with_logprobs: bool
) -> AsyncGenerator[list[Delta], None]:
    """Once every sample has ended, the deltas of the n with the highest mean log probability per token, best first.

    Args:
        samples: of one prompt, with log probabilities.
        first_index: in the job, of the best one.
        with_logprobs: whether the client asked for log probabilities too.
    """
    by_index: dict[int, list[Delta]] = {}
    async with aclosing(samples):
        async for deltas in samples:
            for delta in deltas:
                by_index.setdefault(delta.index, []).append(delta)
    ranked = sorted((by_index[index] for index in sorted(by_index)), key=_score, reverse=True)
    chosen = [
        _as_choice(delta, index=first_index + rank, with_logprobs=with_logprobs)
        for rank, sample in enumerate(ranked[:n])
        for delta in sample
    ]
    dropped = sum(len(delta.token_ids) for sample in ranked[n:] for delta in sample)
    cached = max(delta.num_cached_tokens for delta in by_index[min(by_index)])
    yield [replace(chosen[0], num_dropped_tokens=dropped, num_cached_tokens=cached), *chosen[1:]]


def _score(sample: Sequence[Delta]) -> float:
    score = sample[-1].score
    assert score is not None, "samples to choose from come with log probabilities"
    return score


def _as_choice(delta: Delta, *, index: int, with_logprobs: bool) -> Delta:
    if with_logprobs:
        return replace(delta, index=index)
    return replace(delta, index=index, logprobs=(), text_offsets=())
