"""`headway up --emulate`: what is asked for, and what is refused."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from headway.cli.app import app
from headway.cli.emulation import parse_emulation
from headway.cli.models import read_models
from headway.core.catalogue import built_in_catalogue
from headway.core.deployment import EmulatedDevices, WorkerOptions
from headway.core.errors import HeadwayError, InvalidArgumentError
from headway.core.slo import Slo


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("16xV100", EmulatedDevices(count=16, name="V100-16", memory_bytes=16_000_000_000)),
        ("1 x V100-16", EmulatedDevices(count=1, name="V100-16", memory_bytes=16_000_000_000)),
        ("2xTesla V100-SXM2-32GB", EmulatedDevices(count=2, name="V100-32", memory_bytes=32_000_000_000)),
    ],
)
def test_devices_are_found_by_the_catalogues_name_and_by_a_vendors(text: str, wanted: EmulatedDevices) -> None:
    assert parse_emulation(text, memory_bytes=None, catalogue=built_in_catalogue()) == (wanted,)


def test_workers_may_be_of_several_kinds() -> None:
    emulated = parse_emulation("2xV100, 1xA100-40", memory_bytes=None, catalogue=built_in_catalogue())
    options = WorkerOptions(count=4, emulated=emulated)
    kinds = [options.emulated_by(index) for index in range(4)]
    assert [kind and kind.name for kind in kinds] == ["V100-16", "V100-16", "A100-40", None]


def test_less_memory_may_be_used_than_there_is() -> None:
    (devices,) = parse_emulation("2xV100", memory_bytes=13 * 1024**3, catalogue=built_in_catalogue())
    assert devices.memory_bytes == 13 * 1024**3


@pytest.mark.parametrize(
    ("text", "memory_bytes", "said"),
    [
        ("V100", None, "16xV100"),
        ("0xV100", None, "16xV100"),
        ("2xV100,1xV100-16", None, "a kind of device twice"),
        ("2xK80", None, "no GPU named 'K80'"),
        ("2xV100", 2**40, "has 14.9 GiB"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, memory_bytes: int | None, said: str) -> None:
    with pytest.raises(HeadwayError) as refused:
        parse_emulation(text, memory_bytes=memory_bytes, catalogue=built_in_catalogue())
    assert said in str(refused.value)


def test_a_profile_stands_for_a_model_on_emulated_devices_only(tmp_path: Path) -> None:
    arguments = ["profile:bert-1.3b", "second=profile:bert-1.3b"]
    models = read_models(arguments, dtype=None, max_model_len=None, slo=Slo(), is_emulated=True)
    assert [(model.name, model.profile) for model in models] == [("bert-1.3b", "bert-1.3b"), ("second", "bert-1.3b")]
    assert all((Path(model.directory) / "tokenizer.json").is_file() for model in models)
    with pytest.raises(InvalidArgumentError, match="known by its profile alone"):
        read_models(arguments, dtype=None, max_model_len=None, slo=Slo())
    with pytest.raises(InvalidArgumentError, match="names no profile"):
        read_models(["profile:"], dtype=None, max_model_len=None, slo=Slo(), is_emulated=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--emulate", "4xV100", "--workers", "2"], "Leave --workers out"),
        (["--stage-profiles", __file__], "for emulated devices"),
        (["--emulate", "4xK80"], "no GPU named"),
    ],
)
def test_headway_up_refuses_it_before_anything_starts(options: list[str], said: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["up", "--model", "profile:m", *options, "--state-dir", str(tmp_path / "s")])
    assert result.exit_code != 0
    assert said in f"{result.output}{result.exception}"
    assert not (tmp_path / "s").exists()
