"""Prefixes that another group holds: worth fetching where that takes clearly less time than computing them."""

from collections.abc import Sequence
from dataclasses import replace

from headway.core.prefix_source import PrefixSource
from headway.router.candidate_group import CandidateGroup
from headway.router.request import RoutingRequest

_BYTES_PER_S = 200e6
"""Between workers that have exchanged nothing lately: little for memory, much for a slow network."""

_CALL_S = 0.005
_MIN_GAIN = 1.5
"""Times less than computing: estimates err, and the source's own requests wait while its blocks are read."""

_MIN_TIMEOUT_S = 0.1


def with_source(request: RoutingRequest, candidate: CandidateGroup, others: Sequence[CandidateGroup]) -> CandidateGroup:
    """The candidate with the one of `others` from which it would fetch more of the prompt, if that is worth it."""
    holders = [other for other in others if other.worker_id != candidate.worker_id and _can_exchange(candidate, other)]
    holder = max(holders, key=_num_whole_blocks, default=None)
    if holder is None or not candidate.is_predictable:
        return candidate
    num_tokens = _num_whole_blocks(holder) * candidate.block_size - candidate.num_cached_tokens
    if num_tokens <= 0:
        return candidate
    fetched = replace(
        candidate, num_fetched_tokens=num_tokens, fetch_s=_fetch_s(candidate, holder, num_tokens=num_tokens)
    )
    saved_s = fetched.saved_s(request)
    if fetched.fetch_s * _MIN_GAIN > saved_s:
        return candidate
    source = PrefixSource(
        worker_id=holder.worker_id,
        endpoint=holder.endpoint,
        num_blocks=_num_whole_blocks(holder),
        timeout_s=max(_MIN_TIMEOUT_S, saved_s),
    )
    return replace(fetched, source=source)


def _fetch_s(candidate: CandidateGroup, holder: CandidateGroup, *, num_tokens: int) -> float:
    """Returns the seconds to fetch blocks from the holder. Both ends read or write them between two of their steps."""
    num_bytes = -(-num_tokens // candidate.block_size) * candidate.block_bytes
    bytes_per_s = candidate.fetch_bytes_per_s or _BYTES_PER_S
    return _CALL_S + holder.step_s() + candidate.step_s() + num_bytes / bytes_per_s


def _can_exchange(candidate: CandidateGroup, other: CandidateGroup) -> bool:
    same_blocks = (candidate.block_size, candidate.block_bytes) == (other.block_size, other.block_bytes)
    return candidate.block_bytes > 0 and same_blocks


def _num_whole_blocks(candidate: CandidateGroup) -> int:
    return candidate.num_cached_tokens // candidate.block_size if candidate.block_size else 0
