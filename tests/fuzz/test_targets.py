"""Whatever others wrote is read, or refused with a reason: a body, a file, a message. Ten thousand cases that coverage
guides, each time the same; `make fuzz` has as many as one likes.
"""

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from headway.v1 import common_pb2
from tests.fuzz.amount import NUM_CASES
from tests.fuzz.mutation import garble, mutate_json, mutate_message


@pytest.mark.timeout(0)
def test_every_case_is_answered(tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="atheris, which guides by coverage, has no wheel for this platform")
    command = [sys.executable, "-m", "tests.fuzz", "--cases", str(NUM_CASES), "--directory", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-20_000:] + run.stderr[-5_000:]


@pytest.mark.parametrize("mutate", [garble, mutate_json])
def test_a_case_is_another_for_another_seed_and_the_same_for_the_same(mutate: object) -> None:
    assert callable(mutate)
    cases = [mutate(b'{"a": [1, 2, {"b": "c"}]}', Random(seed)) for seed in range(50)]
    assert cases == [mutate(b'{"a": [1, 2, {"b": "c"}]}', Random(seed)) for seed in range(50)]
    assert len(set(cases)) > 40


def test_messages_get_values_at_the_edge_of_their_types() -> None:
    plain = common_pb2.SamplingParams(max_tokens=4, temperature=1.0, stop_token_ids=[1])
    before = plain.SerializeToString()
    cases = [mutate_message(plain, Random(seed)) for seed in range(4000)]
    assert plain.SerializeToString() == before
    assert {-(2**31), 2**31 - 1, -1} <= {case.max_tokens for case in cases}
    assert {"inf", "-inf", "nan", "0.0"} <= {str(case.temperature) for case in cases}
