import shutil
from pathlib import Path
from typing import Any

import pytest

from headway.cli.engine_choice import read_engines
from headway.cli.models import read_models
from headway.core.engine_kind import EngineKind
from headway.core.errors import InvalidArgumentError, NotFoundError
from headway.core.slo import Slo
from tests.checkpoints import edit_json

SLO = Slo(ttft_s=0.5)


def test_a_model_is_called_as_its_directory_unless_it_is_named(checkpoint: Path) -> None:
    models = read_models(
        [str(checkpoint), f"other={checkpoint}"], dtype=None, quantization=None, max_model_len=128, slo=SLO
    )
    assert [model.name for model in models] == ["tiny", "other"]
    assert {model.directory for model in models} == {str(checkpoint)}
    assert {(model.max_model_len, model.slo) for model in models} == {(128, SLO)}


def test_the_dtype_is_the_one_asked_for(checkpoint: Path) -> None:
    (model,) = read_models([str(checkpoint)], dtype="bfloat16", quantization=None, max_model_len=None, slo=SLO)
    assert model.spec.dtype == "bfloat16"


def test_weights_are_rounded_as_asked_for(checkpoint: Path) -> None:
    (model,) = read_models([str(checkpoint)], dtype=None, quantization="int8", max_model_len=None, slo=SLO)
    assert model.spec.quantization == "int8"


def test_two_models_of_one_name_are_refused(checkpoint: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="NAME=DIR"):
        read_models([str(checkpoint), str(checkpoint)], dtype=None, quantization=None, max_model_len=None, slo=SLO)


def test_longer_sequences_than_the_model_takes_are_refused(checkpoint: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="512"):
        read_models([str(checkpoint)], dtype=None, quantization=None, max_model_len=513, slo=SLO)


def test_a_directory_with_an_equals_sign_is_taken_whole(checkpoint: Path, tmp_path: Path) -> None:
    odd = tmp_path / "a=b"
    odd.symlink_to(checkpoint)
    (model,) = read_models([str(odd)], dtype=None, quantization=None, max_model_len=None, slo=SLO)
    assert model.name == "tiny"


def test_a_missing_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="nothing"):
        read_models([str(tmp_path / "nothing")], dtype=None, quantization=None, max_model_len=None, slo=SLO)
    with pytest.raises(InvalidArgumentError, match="no name"):
        read_models([f"={tmp_path}"], dtype=None, quantization=None, max_model_len=None, slo=SLO)


def test_generation_config_is_the_checkpoints_unless_said_otherwise(checkpoint: Path, tmp_path: Path) -> None:
    def chosen(option: str) -> str:
        (model,) = read_models([str(checkpoint)], dtype=None, max_model_len=None, slo=SLO, generation_config=option)
        return model.generation_config

    (tmp_path / "generation_config.json").write_text("{}")
    assert [chosen(option) for option in ("auto", "none", "vllm", f"{tmp_path}/.")] == [
        "",
        "none",
        "none",
        str(tmp_path),
    ]
    with pytest.raises(NotFoundError, match=r"generation_config\.json is missing"):
        chosen(str(tmp_path / "nothing"))


def test_a_family_that_only_vllm_has_is_for_a_model_on_vllm(checkpoint: Path, tmp_path: Path) -> None:
    other = shutil.copytree(checkpoint, tmp_path / "gemma")
    edit_json(other / "config.json", architectures=["GemmaForCausalLM"])
    (other / "model.safetensors").write_bytes(bytes(1000))
    fields: dict[str, Any] = {"dtype": None, "max_model_len": None}
    engines = read_engines(["gemma=vllm"], [])
    own, theirs = read_models([f"own={checkpoint}", f"gemma={other}"], slo=Slo(), engines=engines, **fields)
    assert (own.engine, theirs.engine) == (EngineKind.HEADWAY, EngineKind.VLLM)
    assert theirs.spec.weight_bytes == 1000
    with pytest.raises(InvalidArgumentError) as refused:
        read_models([f"gemma={other}"], slo=Slo(), **fields)
    assert (refused.value.field, "--engine vllm" in refused.value.hint) == ("architectures", True)
