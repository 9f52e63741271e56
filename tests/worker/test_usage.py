"""What a worker tells of its blocks, as it arrives at the other end of the wire."""

import itertools

from headway.core.kv import KvUsage, SequenceBlocks
from headway.core.request import GenerationRequest, SamplingParams
from headway.engine.config import EngineConfig
from headway.engine.engine import Engine
from headway.rpc.convert import from_pb, to_pb
from headway.v1 import common_pb2
from headway.worker.usage import sequences_of, usage_of
from tests.engine.oracle import OracleModel, OracleRunner

OWNERS = [("w",), ("x",)]


def running(**limits: int) -> Engine:
    """An engine that has computed a prompt of 24 tokens, 6 blocks."""
    config = EngineConfig(num_blocks=16, block_size=4, max_model_len=60, **limits)
    engine = Engine(config, runner=OracleRunner(OracleModel(), config), clock=itertools.count().__next__)
    sampling = SamplingParams(max_tokens=8)
    engine.submit(GenerationRequest(request_id="a", model="m", prompt_token_ids=tuple(range(24)), sampling=sampling))
    engine.step()
    return engine


def test_usage_and_tables_tell_the_shards() -> None:
    engine = running(num_shards=2)
    usage = from_pb(to_pb(usage_of(engine, worker_id="w", model="m", owners=OWNERS), common_pb2.KvUsage), KvUsage)
    assert [(shard.num_used_blocks, shard.num_free_blocks) for shard in usage.shards] == [(3, 5), (3, 5)]
    assert [(shard.weight, shard.worker_ids) for shard in usage.shards] == [(0.5, ("w",)), (0.5, ("x",))]
    (sequence,) = sequences_of(engine, "a")
    assert from_pb(to_pb(sequence, common_pb2.SequenceBlocks), SequenceBlocks) == sequence
    assert [block.shard for block in sequence.blocks] == [block.block_id // 8 for block in sequence.blocks]
    assert (sequence.num_shards, {block.shard for block in sequence.blocks}) == (2, {0, 1})


def test_moves_after_new_weights_are_counted() -> None:
    engine = running(num_shards=2, rebalance_every_steps=1, max_rebalance_moves=2)
    engine.set_shard_weights([1, 0])
    moved = []
    for _ in range(3):
        engine.step()
        moved.append(usage_of(engine, worker_id="w", model="m", owners=OWNERS).num_moved_blocks)
    assert moved == [2, 3, 3]
    (sequence,) = sequences_of(engine, "a")
    assert {block.shard for block in sequence.blocks} == {0}


def test_a_whole_cache_is_one_shard() -> None:
    engine = running()
    usage, (sequence,) = usage_of(engine, worker_id="w", model="m", owners=[()]), sequences_of(engine, "a")
    assert [shard.num_blocks for shard in usage.shards] == [16]
    assert (sequence.num_shards, {block.shard for block in sequence.blocks}) == (1, {0})
