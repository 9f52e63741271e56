"""One worker and two do the same work, and what is said of it."""

import os

from benchmarks.parallel.burst import Burst
from benchmarks.parallel.long_decode import LongDecode
from benchmarks.parallel.ranks import RankWork, do_work
from benchmarks.parallel.report import BurstRow, DecodeRow, burst_table, decode_table, volume_table
from headway.checkpoint.model_directory import read_checkpoint
from headway.core.parallel_config import SINGLE, ParallelConfig
from tests.checkpoints import make_checkpoint

BURST = Burst(num_requests=4, prompt_tokens=20, output_tokens=6)
DECODE = LongDecode(num_sequences=3, context_tokens=300)


def test_two_workers_give_the_same_tokens_and_send_what_is_derived(tmp_path):
    parallel = ParallelConfig(cp=2)
    directory = make_checkpoint(tmp_path, "llama")
    work = RankWork(directory=directory, dtype="float32", bursts=(BURST,), decodes=(DECODE,))
    cores = sorted(os.sched_getaffinity(0))
    alone, group = (do_work(work, layout, cores=(cores[0], cores[-1])) for layout in (SINGLE, parallel))
    spec = read_checkpoint(directory).spec
    assert alone.counted == ({},)
    assert group.counted == group.derived(spec, parallel)
    assert all(group.counted[1:])
    row = BurstRow.of(parallel, BURST, alone.outcomes, group.outcomes, min_speedup=1.5)
    assert row.equal_sequences == 1
    assert 0 < row.waiting_share < 1
    assert burst_table([row]).splitlines()[2].startswith(f"| `{parallel.flags}` | 4 x 20 + 6 |")
    timed = DecodeRow.of(parallel, DECODE, alone.timings, group.timings, min_speedup=1.5)
    assert decode_table([timed]).splitlines()[2].startswith(f"| `{parallel.flags}` | 3 x 300 |")
    assert len(volume_table(spec).splitlines()) == 2 + 3
