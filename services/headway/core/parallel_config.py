"""The parallel config of a group: the axes along which workers share one model, and the coordinates of each rank."""

from collections.abc import Iterator
from dataclasses import dataclass

CP_FFN = ("data", "tensor")


@dataclass(frozen=True, slots=True)
class Span:
    """The half-open range [start, stop)."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def __contains__(self, item: int) -> bool:
        return self.start <= item < self.stop

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.stop))

    def as_slice(self) -> slice:
        return slice(self.start, self.stop)


def split(total: int, *, parts: int, index: int) -> Span:
    """A contiguous share of `total` things; the first `total % parts` shares have one more."""
    size, rest = divmod(total, parts)
    start = index * size + min(index, rest)
    return Span(start, start + size + (index < rest))


@dataclass(frozen=True, slots=True)
class Place:
    """A rank's coordinates in its group.

    Attributes:
        stage: its pipeline stage; the first embeds, the last gives hidden states, from which all compute logits.
        shard: its shard of the KV cache.
        tensor: its part of the weights.
    """

    stage: int
    shard: int
    tensor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelConfig:
    """A group's axes. Rank 0 leads; it is in the last stage, so that no result has to travel back to it.

    Attributes:
        tp: ranks that share each layer's weights (tensor parallel).
        pp: stages of layers (pipeline parallel).
        cp: ranks that share each sequence's keys and values (cache parallel, thesis chapter 4).
        stage_layers: layers of each stage, the first stage first; empty for as even as possible.
        cp_ffn: what cache-parallel ranks share outside attention: 'data' (the tokens) or 'tensor' (the weights).
    """

    tp: int = 1
    pp: int = 1
    cp: int = 1
    stage_layers: tuple[int, ...] = ()
    cp_ffn: str = "data"

    @property
    def num_ranks(self) -> int:
        return self.tp * self.pp * self.cp

    def place(self, rank: int) -> Place:
        rest, tensor = divmod(rank, self.tp)
        from_end, shard = divmod(rest, self.cp)
        return Place(self.pp - 1 - from_end, shard, tensor)

    def rank_of(self, place: Place) -> int:
        return ((self.pp - 1 - place.stage) * self.cp + place.shard) * self.tp + place.tensor

    def tensor_ranks(self, rank: int) -> tuple[int, ...]:
        """Returns the ranks of the same stage and shard, by tensor coordinate."""
        place = self.place(rank)
        return tuple(self.rank_of(Place(place.stage, place.shard, tensor)) for tensor in range(self.tp))

    def weight_ranks(self, rank: int) -> tuple[int, ...]:
        """Returns the ranks of the same stage that share each layer's weights with this one, in the order of their
        parts.
        """
        if self.cp_ffn == "data":
            return self.tensor_ranks(rank)
        stage = self.place(rank).stage
        mates = [mate for mate in range(self.num_ranks) if self.place(mate).stage == stage]
        return tuple(sorted(mates, key=self.weight_part))

    def cache_ranks(self, rank: int) -> tuple[int, ...]:
        """Returns the ranks of the same stage and tensor coordinate, by shard."""
        place = self.place(rank)
        return tuple(self.rank_of(Place(place.stage, shard, place.tensor)) for shard in range(self.cp))

    def next_rank(self, rank: int) -> int | None:
        """The counterpart in the stage after; None in the last."""
        place = self.place(rank)
        if place.stage == self.pp - 1:
            return None
        return self.rank_of(Place(place.stage + 1, place.shard, place.tensor))

    def previous_rank(self, rank: int) -> int | None:
        """The counterpart in the stage before; None in the first."""
        place = self.place(rank)
        return None if place.stage == 0 else self.rank_of(Place(place.stage - 1, place.shard, place.tensor))

    def weight_part(self, rank: int) -> tuple[int, int]:
        """(index, parts) of the split of heads, MLPs and the embedding."""
        place = self.place(rank)
        if self.cp_ffn == "tensor":
            return place.tensor * self.cp + place.shard, self.tp * self.cp
        return place.tensor, self.tp

    def head_part(self, rank: int) -> tuple[int, int]:
        """(index, parts) of the split of the output head, which the stages share too; the leader has the first."""
        index, parts = self.weight_part(rank)
        return index * self.pp + self.pp - 1 - self.place(rank).stage, parts * self.pp

    def head_ranks(self, rank: int) -> tuple[int, ...]:
        """Returns the ranks that share the output head with this one, in the order of their parts: the weight ranks of
        all stages.
        """
        shard = self.place(rank).shard
        mates = [mate for mate in range(self.num_ranks) if self.cp_ffn == "tensor" or self.place(mate).shard == shard]
        return tuple(sorted(mates, key=self.head_part))

    @property
    def flags(self) -> str:
        """Returns the config as flags of `headway up`."""
        axes = [f"--{name} {size}" for name, size in (("tp", self.tp), ("pp", self.pp), ("cp", self.cp)) if size > 1]
        if self.stage_layers:
            axes.append(f"--stage-layers {','.join(map(str, self.stage_layers))}")
        if self.cp_ffn != CP_FFN[0]:
            axes.append(f"--cp-ffn {self.cp_ffn}")
        return " ".join(axes) or "--tp 1"

    def __str__(self) -> str:
        axes = [f"{name} {size}" for name, size in (("tp", self.tp), ("pp", self.pp), ("cp", self.cp)) if size > 1]
        return " x ".join(axes) or "one worker"


SINGLE = ParallelConfig()
