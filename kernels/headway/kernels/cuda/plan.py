"""How one launch of decode attention is cut into work for the CTAs of a GPU. Pure: no device is needed.

A CTA attends to a range of one row's keys for one KV head, and then to another; as many ranges as the GPU has slots for
are attended to side by side. Rows whose keys are cut into several ranges have partial results, which a second launch
merges. The ranges are planned on the host once for all layers of a step, and the number of CTAs is always the same, so
that a captured CUDA graph serves every step of a batch's size.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]

WORK_FIELDS = 6  # row, sequence, first_key, end_key, position, partial: csrc/cuda/decode_problem.h
CHUNK_KEYS = 64  # ranges are cut at multiples: no fewer keys are worth a CTA
RANGE_COST_KEYS = 64  # what beginning a range and merging its result costs, in keys that a CTA could read meanwhile
MAX_ROUNDS = 4  # into how many ranges a slot the keys are cut at most, so that the last are short
MAX_KEYS = 1 << 24


@dataclass(frozen=True, slots=True)
class DecodeRows:
    """The query tokens of a step, one row each.

    Attributes:
        sequences: [rows], the row of the block table that each one's keys lie in.
        first_keys, end_keys: [rows], the keys that each one sees; a sliding window or a shard's part make them differ
            from all keys of the sequence. Equal where it sees none.
        positions: [rows], of each query among the keys, from which ALiBi counts the distance.
    """

    sequences: Ints
    first_keys: Ints
    end_keys: Ints
    positions: Ints

    def __post_init__(self) -> None:
        for name in ("sequences", "first_keys", "end_keys", "positions"):
            column = getattr(self, name)
            if column.shape != (len(self),) or column.dtype != np.int32:
                raise ValueError(f"{name} must be int32 [{len(self)}]; it is {column.dtype} {list(column.shape)}")
        if (self.first_keys < 0).any() or (self.first_keys > self.end_keys).any():
            raise ValueError("first_keys must lie between 0 and end_keys")
        if (self.end_keys > MAX_KEYS).any():
            raise ValueError(f"end_keys must be at most {MAX_KEYS}; the largest is {self.end_keys.max()}")

    def __len__(self) -> int:
        return len(self.sequences)

    @classmethod
    def of_lengths(cls, seq_lens: Ints, *, sliding_window: int | None = None) -> "DecodeRows":
        """Makes one row for each sequence: its last token, which sees all keys, or as many as the window has, its own
        included."""
        if sliding_window is not None and sliding_window < 1:
            raise ValueError(f"sliding_window must be at least 1; it is {sliding_window}")
        ends = np.asarray(seq_lens, dtype=np.int32)
        firsts = np.zeros_like(ends) if sliding_window is None else np.maximum(ends - np.int32(sliding_window), 0)
        return cls(np.arange(len(ends), dtype=np.int32), firsts, ends, ends - 1)


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """The work items of one launch of decode attention.

    Attributes:
        work: [items, WORK_FIELDS], the largest first; slots take them in turn, forwards and backwards.
        starts: [rows + 1]; row r's partial results are starts[r] up to starts[r + 1], none where it is computed whole.
    """

    work: Ints
    starts: Ints


def work_capacity(num_rows: int, *, num_slots: int) -> int:
    """The most items that a plan of `num_rows` rows has."""
    return num_rows + MAX_ROUNDS * num_slots


def _round_up(keys: float) -> int:
    return max(int(-(-keys // CHUNK_KEYS)), 1) * CHUNK_KEYS


def _time(lengths: NDArray[np.int64], chunk: int, num_slots: int) -> int:
    """The time of the slot with most to do, in keys: slots take ranges in turn, forwards and backwards."""
    rests = lengths % chunk
    ranges = np.concatenate((np.full((lengths // chunk).sum(), chunk), np.sort(rests[rests > 0])[::-1]))
    rounds = np.zeros((-(-len(ranges) // num_slots), num_slots), np.int64)
    rounds.reshape(-1)[: len(ranges)] = ranges + RANGE_COST_KEYS
    rounds[1::2] = rounds[1::2, ::-1]
    return int(rounds.sum(axis=0).max(initial=0))


def chunk_keys(lengths: NDArray[np.int64], *, num_slots: int) -> int:
    """The most keys of a range, such that the ranges keep all slots about equally long at work."""
    total = int(lengths.sum())
    candidates = {_round_up(total / (num_slots * rounds)) for rounds in range(1, MAX_ROUNDS + 1)}
    candidates.add(_round_up(int(lengths.max(initial=0))))
    return min(sorted(candidates, reverse=True), key=lambda chunk: _time(lengths, chunk, num_slots))


def plan_decode(rows: DecodeRows, *, num_slots: int) -> DecodePlan:
    """Cuts the rows' keys into ranges.

    Args:
        num_slots: ranges that the GPU attends to side by side.
    """
    if num_slots < 1:
        raise ValueError(f"num_slots must be at least 1; it is {num_slots}")
    lengths = (rows.end_keys - rows.first_keys).astype(np.int64)
    chunk = chunk_keys(lengths, num_slots=num_slots)
    counts = np.maximum(-(-lengths // chunk), 1)
    num_partials = np.where(counts > 1, counts, 0)
    starts = np.concatenate(([0], np.cumsum(num_partials)))
    owners = np.repeat(np.arange(len(rows)), counts)
    indices = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    first_keys = rows.first_keys[owners] + indices * chunk
    end_keys = np.minimum(first_keys + chunk, rows.end_keys[owners])
    partials = np.where(counts[owners] > 1, starts[owners] + indices, -1)
    columns = (owners, rows.sequences[owners], first_keys, end_keys, rows.positions[owners], partials)
    order = np.argsort(first_keys - end_keys, kind="stable")
    return DecodePlan(
        work=np.stack(columns, axis=1)[order].astype(np.int32),
        starts=starts.astype(np.int32),
    )
