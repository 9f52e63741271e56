"""What `headway kv` and `headway prefix` show; the stack behind them is real in `tests/integration`."""

from dataclasses import replace
from io import StringIO
from pathlib import Path

from rich.console import Console

from headway.cli.kv_view import request_view, usage_view
from headway.core.kv import BlockUse, KvUsage, RequestUsage, SequenceBlocks, ShardUsage, TokenRange
from tests.cli.conftest import Run

USAGE = KvUsage(
    worker_id="worker-0",
    model="tiny",
    block_size=16,
    num_used_blocks=30,
    num_cached_blocks=10,
    num_free_blocks=60,
    num_shared_blocks=4,
    num_table_entries=42,
    num_allocated_slots=30 * 16,
    num_wasted_slots=12,
    num_prefix_query_tokens=200,
    num_prefix_hit_tokens=50,
)


def render(view: object, *, width: int = 240) -> str:
    file = StringIO()
    Console(width=width, file=file).print(view)
    return file.getvalue()


def test_figures_follow_from_what_workers_count() -> None:
    assert USAGE.num_blocks == 100
    assert USAGE.num_saved_blocks == 12
    assert USAGE.waste == 12 / 480
    assert USAGE.hit_rate == 0.25
    assert KvUsage(worker_id="worker-1").waste is None


def test_a_row_for_each_worker_also_without_a_model() -> None:
    text = render(usage_view([USAGE, KvUsage(worker_id="worker-1")]))
    for part in ("worker-0", "30 (30%)", "25.0%", "2.5%", "worker-1"):
        assert part in text


def test_nothing_is_cut_off_where_the_terminal_is_narrow() -> None:
    wide = render(usage_view([USAGE, KvUsage(worker_id="worker-1")]))
    narrow = render(usage_view([USAGE, KvUsage(worker_id="worker-1")]), width=80)
    assert "…" not in narrow
    assert max(map(len, narrow.splitlines())) <= 80
    assert set(narrow.split()) >= {part for part in wide.split() if "─" not in part}
    assert narrow.count("worker-1") > wide.count("worker-1") == 1


def test_shards_have_rows_of_their_own_where_there_are_several() -> None:
    shards = tuple(
        ShardUsage(num_used_blocks=n, num_cached_blocks=5, num_free_blocks=45 - n, weight=n / 30, worker_ids=owners)
        for n, owners in ((20, ("worker-0", "worker-2")), (10, ("worker-1",)))
    )
    text = render(usage_view([replace(USAGE, shards=shards)]))
    rows = [" ".join(line.split()) for line in text.splitlines() if line.strip().startswith("shard")]
    assert rows == [
        "shard 0 on worker-0, worker-2 67% of each 20 (40%) 5 25",
        "shard 1 on worker-1 33% of each 10 (20%) 5 35",
    ]
    assert "shard" not in render(usage_view([replace(USAGE, shards=shards[:1])])).replace("shared", "")


def test_a_sequence_tells_which_worker_has_which_tokens_where_there_are_several() -> None:
    ranges = tuple(
        TokenRange(start=start, stop=stop, shard=shard, worker_ids=(f"worker-{shard}",))
        for start, stop, shard in [(0, 32, 0), (32, 48, 1), (48, 53, 0)]
    )
    sequence = SequenceBlocks(
        label="a",
        status="running",
        num_prompt_tokens=20,
        num_tokens=54,
        num_computed_tokens=53,
        blocks=(BlockUse(block_id=3, num_tokens=16),),
        num_shards=3,
        ranges=ranges,
    )
    text = render(request_view([RequestUsage(worker_id="w", model="tiny", block_size=16, sequences=(sequence,))]))
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith("shard ")]
    assert lines == ["shard 0 on worker-0: 37 tokens, 0-31, 48-52", "shard 1 on worker-1: 16 tokens, 32-47"]


def test_a_block_table_names_sharers_and_the_tier() -> None:
    blocks = (
        BlockUse(block_id=7, num_tokens=16, shared_with=("req-1/1",)),
        BlockUse(block_id=3, is_on_host=True, num_tokens=5),
    )
    sequence = SequenceBlocks(
        label="req-1/0", status="running", num_prompt_tokens=20, num_tokens=21, num_computed_tokens=21, blocks=blocks
    )
    part = RequestUsage(worker_id="worker-0", model="tiny", block_size=16, sequences=(sequence,))
    text = render(request_view([part]))
    for words in ("tiny on worker-0", "req-1/0 running: 20 prompt and 1 output tokens", "req-1/1", "host 3"):
        assert words in text


def test_without_a_stack_the_way_to_one_is_told(headway: Run, tmp_path: Path) -> None:
    file = tmp_path / "system.txt"
    file.write_text("You are a station master.")
    for command in (
        ("kv", "top", "--once"),
        ("kv", "show", "x"),
        ("prefix", "list"),
        ("prefix", "pin", "--file", str(file)),
    ):
        result = headway(*command, "--state-dir", str(tmp_path))
        assert result.returncode == 1
        assert "headway up" in result.stderr
