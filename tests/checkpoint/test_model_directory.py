import json
from pathlib import Path

import pytest

from headway.checkpoint.model_directory import read_checkpoint
from headway.core.encoder import Pooling
from headway.core.errors import HeadwayError, InvalidArgumentError, NotFoundError
from headway.core.sampling_defaults import SamplingDefaults
from tests.checkpoints import CHAT_TEMPLATE, EOS, edit_json, make_checkpoint
from tests.encoders import make_encoder


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return make_checkpoint(tmp_path / "model", "llama")


def test_checkpoint_tells_what_serving_needs(directory):
    checkpoint = read_checkpoint(directory)
    assert checkpoint.weight_files == (directory / "model.safetensors",)
    assert checkpoint.weight_bytes == (directory / "model.safetensors").stat().st_size
    assert checkpoint.tokenizer_file == directory / "tokenizer.json"
    assert checkpoint.chat_template == CHAT_TEMPLATE
    assert (checkpoint.bos_token, checkpoint.eos_token) == ("<s>", "</s>")
    assert checkpoint.eos_token_ids == checkpoint.spec.eos_token_ids == (1,)


def test_a_sentence_transformers_directory_names_pooling_and_the_longest_text(tmp_path):
    directory = make_encoder(tmp_path, "bert", pooling=Pooling.CLS, normalizes=True)
    (directory / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 100}))
    spec = read_checkpoint(directory).spec
    assert (spec.encoder.pooling, spec.encoder.normalizes) == (Pooling.CLS, True)
    assert (spec.max_position, spec.encoder.num_positions) == (100, 128)


def test_modules_that_are_not_known_are_refused_by_file(tmp_path):
    directory = make_encoder(tmp_path, "bert", pooling=Pooling.MEAN)
    modules = json.loads((directory / "modules.json").read_text())
    modules.append({"idx": 2, "path": "2_Dense", "type": "sentence_transformers.models.Dense"})
    (directory / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(InvalidArgumentError, match=r"modules\.json: .*Dense"):
        read_checkpoint(directory)


def test_generation_config_overrides_end_of_sequence_ids(directory):
    edit_json(directory / "generation_config.json", eos_token_id=[1, 7])
    assert read_checkpoint(directory).eos_token_ids == (1, 7)


def test_generation_config_says_how_requests_are_sampled(directory, tmp_path):
    assert read_checkpoint(directory).sampling_defaults == SamplingDefaults()
    edit_json(
        directory / "generation_config.json",
        temperature=0.6,
        top_p=0.9,
        top_k=20,
        min_p=0.05,
        repetition_penalty=1.1,
        max_new_tokens=300,
        do_sample=False,
        eos_token_id=[1, 7],
    )
    expected = SamplingDefaults(
        temperature=0.6, top_p=0.9, top_k=20, min_p=0.05, repetition_penalty=1.1, max_tokens=300
    )
    assert read_checkpoint(directory).sampling_defaults == expected
    off = read_checkpoint(directory, generation_config="none")
    assert (off.sampling_defaults, off.eos_token_ids) == (SamplingDefaults(), (1,))
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(NotFoundError, match=r"other/generation_config\.json is missing"):
        read_checkpoint(directory, generation_config=str(other))
    (other / "generation_config.json").write_text(json.dumps({"max_new_tokens": 5, "top_k": None, "eos_token_id": 9}))
    chosen = read_checkpoint(directory, generation_config=str(other))
    assert chosen.sampling_defaults == SamplingDefaults(max_tokens=5, max_tokens_limit=5)
    assert chosen.eos_token_ids == (9,)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", "hot"),
        ("temperature", -1),
        ("temperature", float("nan")),
        ("temperature", 3),
        ("top_p", 0),
        ("top_p", [0.5]),
        ("top_k", 1.5),
        ("top_k", True),
        ("top_k", -2),
        ("min_p", 2),
        ("repetition_penalty", 0),
        ("repetition_penalty", float("inf")),
        ("max_new_tokens", 0),
        ("eos_token_id", "</s>"),
    ],
)
def test_a_bad_generation_config_is_named_by_file_and_field(directory, field, value):
    edit_json(directory / "generation_config.json", **{field: value})
    with pytest.raises(InvalidArgumentError, match=rf"generation_config\.json: {field} must be") as caught:
        read_checkpoint(directory)
    assert caught.value.field == field
    read_checkpoint(directory, generation_config="none")


def test_sharded_weights_are_found_through_the_index(tmp_path):
    directory = make_checkpoint(tmp_path / "model", "llama", max_shard_size="200KB")
    files = read_checkpoint(directory).weight_files
    assert len(files) > 1
    assert all(file.is_file() for file in files)


def test_chat_template_of_the_tokenizer_config_is_used_without_a_file_of_its_own(directory):
    (directory / "chat_template.jinja").unlink()
    assert read_checkpoint(directory).chat_template is None
    edit_json(directory / "tokenizer_config.json", chat_template=[{"name": "default", "template": "{{ x }}"}])
    assert read_checkpoint(directory).chat_template == "{{ x }}"


def test_special_tokens_may_be_objects(directory):
    edit_json(directory / "tokenizer_config.json", eos_token={"content": EOS, "lstrip": False})
    assert read_checkpoint(directory).eos_token == EOS


def test_float16_runs_as_bfloat16_unless_asked_for(directory):
    edit_json(directory / "config.json", dtype="float16")
    assert read_checkpoint(directory).spec.dtype == "bfloat16"
    assert read_checkpoint(directory, dtype="float32").spec.dtype == "float32"


@pytest.mark.parametrize(
    ("name", "hint"),
    [("config.json", "config.json"), ("model.safetensors", "save_pretrained"), ("tokenizer.json", "AutoTokenizer")],
)
def test_missing_file_is_named_with_a_remedy(directory, name, hint):
    (directory / name).unlink()
    with pytest.raises(NotFoundError) as raised:
        read_checkpoint(directory)
    assert str(directory) in raised.value.message
    assert hint in raised.value.hint


def test_missing_directory_is_named(tmp_path):
    with pytest.raises(NotFoundError, match="nowhere"):
        read_checkpoint(tmp_path / "nowhere")


def test_missing_shard_is_named(tmp_path):
    directory = make_checkpoint(tmp_path / "model", "llama", max_shard_size="200KB")
    shard = read_checkpoint(directory).weight_files[1]
    shard.unlink()
    with pytest.raises(NotFoundError, match=shard.name):
        read_checkpoint(directory)


@pytest.mark.parametrize("text", ["{", "[]", "\udcff"])
def test_broken_json_is_named(directory, text):
    (directory / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InvalidArgumentError, match=r"config\.json"):
        read_checkpoint(directory)


@pytest.mark.parametrize("name", ["../other.safetensors", "/etc/passwd", "a/../../b", None, 7])
def test_an_index_that_leads_out_of_the_directory_is_refused(directory, name):
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"w": name}}))
    with pytest.raises(InvalidArgumentError, match=r"index\.json names .* no path within"):
        read_checkpoint(directory)


@pytest.mark.parametrize("name", ["../secret", "/etc", None])
def test_modules_that_lead_out_of_the_directory_are_refused(tmp_path, name):
    directory = make_encoder(tmp_path, "bert", pooling=Pooling.MEAN)
    modules = [{"idx": 0, "path": name, "type": "sentence_transformers.models.Transformer"}]
    (directory / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(InvalidArgumentError, match=r"modules\.json names .* no path within"):
        read_checkpoint(directory)


def test_a_configuration_that_is_a_bomb_is_refused(directory):
    (directory / "config.json").write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(InvalidArgumentError, match="not valid JSON"):
        read_checkpoint(directory)
    with (directory / "config.json").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(InvalidArgumentError, match="1073741824 bytes"):
        read_checkpoint(directory)


def test_index_without_weight_map_is_refused(directory):
    (directory / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}}))
    with pytest.raises(InvalidArgumentError, match="weight_map"):
        read_checkpoint(directory)


def test_unsupported_model_is_refused_with_path_and_field(directory):
    edit_json(directory / "config.json", architectures=["MambaForCausalLM"])
    with pytest.raises(HeadwayError) as raised:
        read_checkpoint(directory)
    assert str(directory / "config.json") in raised.value.message
    assert raised.value.field == "architectures"
