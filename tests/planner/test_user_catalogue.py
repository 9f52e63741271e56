"""Plans rest on the user's catalogue where there is one."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from headway.core.catalogue import built_in_catalogue, read_catalogue
from headway.core.errors import InvalidArgumentError
from headway.core.plan.serving import EngineLimits
from headway.planner.serving.choice import choose_plan
from headway.planner.serving.device_roofline import fabric_of, roofline_of
from headway.rpc.catalogue_config import CatalogueConfig

SLOW = """
devices:
  CPU:
    reached: {float16: 1 GFLOP/s, bandwidth: 100 MB/s, source: "measured here", provenance: measured, error: 5 %}
"""


@pytest.fixture
def slow(tmp_path: Path) -> Path:
    path = tmp_path / "slow.yaml"
    path.write_text(SLOW)
    return path


def test_estimates_follow_the_file(slow: Path, make_model: Any, make_worker: Any) -> None:
    plans = [
        choose_plan(
            [make_model()],
            [make_worker()],
            limits=EngineLimits(),
            profiles={},
            plan_id="plan-1",
            created_at_s=1.0,
            catalogue=catalogue,
        )
        for catalogue in (None, built_in_catalogue(), read_catalogue(slow))
    ]
    usual, built_in, slower = (plan.assignments[0].prediction for plan in plans)
    assert usual == built_in
    assert slower.output_tokens_per_s < usual.output_tokens_per_s / 10


def test_a_cpu_counts_by_its_threads_and_its_memory_has_a_limit(make_worker: Any) -> None:
    rates = [roofline_of(make_worker(num_threads=threads).hardware) for threads in (1, 4, 64)]
    assert [rate.flops for rate in rates] == [120e9, 480e9, 7680e9]
    assert [rate.bytes_per_s for rate in rates] == [10e9, 40e9, 80e9]


def test_a_gpu_that_the_file_does_not_rate_is_the_usual_share_of_its_data_sheet(make_worker: Any) -> None:
    hardware = make_worker(device="cuda", name="AMD Instinct MI300X").hardware
    assert roofline_of(hardware).flops == pytest.approx(0.6 * 1307.4e12)
    assert fabric_of(hardware) == built_in_catalogue().links["Infinity Fabric 3"].fabric


def test_a_gpu_without_a_rate_in_16_bit_is_refused(tmp_path: Path, make_worker: Any) -> None:
    path = tmp_path / "old.yaml"
    path.write_text(
        "devices:\n  K80: {source: x, kind: gpu, names: [K80], bandwidth: 240 GB/s, peak: {float32: 4 TFLOP/s}, "
        "link: PCIe 3, practice: gpu}"
    )
    hardware = make_worker(device="cuda", name="Tesla K80").hardware
    with pytest.raises(InvalidArgumentError, match="no float16 rate of K80"):
        roofline_of(hardware, read_catalogue(path))


def test_a_process_refuses_a_file_with_a_fault_and_takes_one_from_the_environment(
    slow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_CATALOGUE", str(slow))
    assert CatalogueConfig().catalogue == slow
    slow.write_text("devices:\n  CPU: {peak: fast}")
    with pytest.raises(ValidationError, match=r"line 2: devices\.CPU\.peak"):
        CatalogueConfig()
