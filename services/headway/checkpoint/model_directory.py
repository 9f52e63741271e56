"""A checkpoint directory in Hugging Face format, as far as it can be read without torch."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headway.checkpoint.json_file import read_json, read_json_list, read_optional_json
from headway.checkpoint.readable import check_readable, telling_unreadable
from headway.checkpoint.weight_files import find_weights, within
from headway.core.engine_kind import EngineKind
from headway.core.errors import HeadwayError, InvalidArgumentError, NotFoundError
from headway.core.hf_config import checkpoint_dtype, spec_from_config, token_ids
from headway.core.model import ModelFamily, ModelSpec, Task
from headway.core.sampling_defaults import SamplingDefaults, sampling_defaults_from_config
from headway.core.sentence_transformers import Module, apply_modules

NO_GENERATION_CONFIG = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint: the files and settings of a model directory.

    Attributes:
        weight_files: the safetensors files, in order; together they hold every tensor.
        weight_bytes: the size of those files on disk.
        tokenizer_file: the path of `tokenizer.json`.
        chat_template: jinja2 source, or None if the model has none.
        bos_token, eos_token: special tokens as text, for the chat template; empty if the model has none.
        sampling_defaults: what `generation_config.json` recommends.
        eos_token_ids: the tokens that end a sequence (`generation_config.json` over `config.json`); the spec holds the
            same.
    """

    directory: Path
    spec: ModelSpec
    weight_files: tuple[Path, ...]
    weight_bytes: int
    tokenizer_file: Path
    chat_template: str | None
    bos_token: str
    eos_token: str
    sampling_defaults: SamplingDefaults

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        return self.spec.eos_token_ids


@telling_unreadable()
def read_checkpoint(
    directory: Path,
    *,
    dtype: str | None = None,
    quantization: str | None = None,
    has_weights: bool = True,
    generation_config: str = "",
    engine: EngineKind = EngineKind.HEADWAY,
) -> Checkpoint:
    """Reads everything but the weights.

    Args:
        directory: holds `config.json`, safetensors weights (sharded or not) and `tokenizer.json`.
        dtype: to run the model in; None takes the checkpoint's own, except that for Headway's own engine float16
            becomes bfloat16, which the CPU kernels compute in.
        quantization: what the matrices are rounded to when they are loaded ('int8'); None keeps them in `dtype`.
        has_weights: False for whoever does without: they need not be there, and `weight_files` is empty.
        generation_config: see `ModelDeployment`.
        engine: that is to compute the model.

    Raises:
        NotFoundError: the directory or a file in it is missing.
        InvalidArgumentError: a file is malformed, or may not be read, or the model is not one that the engine runs.
    """
    if not directory.is_dir():
        raise NotFoundError(f"There is no directory {directory}.", hint="Give the path of a model directory.")
    spec = read_spec(
        directory, dtype=dtype, quantization=quantization, generation_config=generation_config, engine=engine
    )
    weight_files = find_weights(directory) if has_weights else ()
    weight_bytes = sum(file.stat().st_size for file in weight_files)
    if spec.family is ModelFamily.OTHER:
        spec = replace(spec, stored_bytes=weight_bytes)
    tokenizer_config = read_optional_json(directory / "tokenizer_config.json")
    return Checkpoint(
        directory=directory,
        spec=spec,
        weight_files=weight_files,
        weight_bytes=weight_bytes,
        tokenizer_file=_find_tokenizer(directory),
        chat_template=_read_chat_template(directory, tokenizer_config),
        bos_token=_special_token(directory, tokenizer_config, "bos_token"),
        eos_token=_special_token(directory, tokenizer_config, "eos_token"),
        sampling_defaults=_read_sampling_defaults(directory, spec, generation_config),
    )


@telling_unreadable()
def read_spec(
    directory: Path,
    *,
    dtype: str | None = None,
    quantization: str | None = None,
    generation_config: str = "",
    engine: EngineKind = EngineKind.HEADWAY,
) -> ModelSpec:
    """The shape of the model, from its configuration alone; arguments and errors as of `read_checkpoint`."""
    path = directory / "config.json"
    if not path.is_file():
        raise NotFoundError(
            f"{path} is missing.", hint="A model directory in Hugging Face format has a config.json at its top."
        )
    config = read_json(path)
    if dtype is None and engine is EngineKind.HEADWAY and checkpoint_dtype(config) == "float16":
        dtype = "bfloat16"
    try:
        spec = spec_from_config(config, dtype=dtype, quantization=quantization, engine=engine)
    except HeadwayError as error:
        raise _in_file(path, error) from error
    path, generation = _read_generation_config(directory, generation_config)
    try:
        eos_token_ids = token_ids(generation.get("eos_token_id")) or spec.eos_token_ids
    except HeadwayError as error:
        raise _in_file(path, error) from error
    return _read_modules(directory, replace(spec, eos_token_ids=eos_token_ids))


def _read_sampling_defaults(directory: Path, spec: ModelSpec, generation_config: str) -> SamplingDefaults:
    """`max_new_tokens` of a directory that the operator has chosen holds for all requests, as in vLLM."""
    if spec.task is not Task.GENERATE:
        return SamplingDefaults()
    path, generation = _read_generation_config(directory, generation_config)
    try:
        return sampling_defaults_from_config(generation, is_limit=bool(generation_config))
    except HeadwayError as error:
        raise _in_file(path, error) from error


def _read_generation_config(directory: Path, generation_config: str) -> tuple[Path, dict[str, Any]]:
    """Returns the path and content of the generation config. The checkpoint's own may be missing; one that was chosen
    must exist.
    """
    path = Path(generation_config or directory) / "generation_config.json"
    if generation_config == NO_GENERATION_CONFIG:
        return path, {}
    if generation_config and not path.is_file():
        raise NotFoundError(
            f"{path} is missing.",
            hint="Give a directory that holds a generation_config.json, or 'auto' or 'none'.",
            field="--generation-config",
        )
    return path, read_optional_json(path)


def _in_file(path: Path, error: HeadwayError) -> InvalidArgumentError:
    return InvalidArgumentError(f"{path}: {error.message}", hint=error.hint, field=error.field)


def _read_modules(directory: Path, spec: ModelSpec) -> ModelSpec:
    """Pooling, normalisation and longest text of a sentence-transformers directory; without one, mean pooling."""
    path = directory / "modules.json"
    if spec.task is not Task.EMBED or spec.encoder is None or not path.is_file():
        return spec
    modules = [
        Module(
            str(entry.get("type")).rsplit(".", 1)[-1],
            read_optional_json(within(directory, entry.get("path"), source=path) / "config.json"),
        )
        for entry in read_json_list(path)
    ]
    try:
        encoder = apply_modules(spec.encoder, modules)
    except HeadwayError as error:
        raise _in_file(path, error) from error
    longest = read_optional_json(directory / "sentence_bert_config.json").get("max_seq_length")
    return replace(spec, encoder=encoder, max_position=min(spec.max_position, int(longest or spec.max_position)))


def _find_tokenizer(directory: Path) -> Path:
    path = directory / "tokenizer.json"
    if not path.is_file():
        raise NotFoundError(
            f"{path} is missing.",
            hint="Write it with transformers: AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR).",
        )
    check_readable(path)  # `tokenizers` would call it none
    return path


def _read_chat_template(directory: Path, tokenizer_config: Mapping[str, Any]) -> str | None:
    path = directory / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    template = tokenizer_config.get("chat_template")
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _special_token(directory: Path, tokenizer_config: Mapping[str, Any], name: str) -> str:
    token = tokenizer_config.get(name) or read_optional_json(directory / "special_tokens_map.json").get(name)
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else ""
