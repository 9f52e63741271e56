"""A checkpoint directory in Hugging Face format, as far as it can be read without torch."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headway.core.errors import HeadwayError, InvalidArgumentError, NotFoundError
from headway.core.hf_config import checkpoint_dtype, spec_from_config, token_ids
from headway.core.model import ModelSpec, Task
from headway.core.sampling_defaults import SamplingDefaults, sampling_defaults_from_config
from headway.core.sentence_transformers import Module, apply_modules

NO_GENERATION_CONFIG = "none"

_MAX_JSON_BYTES = 128 * 1024 * 1024  # an index of 100,000 tensors has a tenth of that
_INDEX_FILE = "model.safetensors.index.json"


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


def read_checkpoint(
    directory: Path,
    *,
    dtype: str | None = None,
    quantization: str | None = None,
    has_weights: bool = True,
    generation_config: str = "",
) -> Checkpoint:
    """Reads everything but the weights.

    Args:
        directory: holds `config.json`, safetensors weights (sharded or not) and `tokenizer.json`.
        dtype: to run the model in; None takes the checkpoint's own, except that float16 becomes bfloat16, which
            the CPU kernels compute in.
        quantization: what the matrices are rounded to when they are loaded ('int8'); None keeps them in `dtype`.
        has_weights: False for whoever does without: they need not be there, and `weight_files` is empty.
        generation_config: see `ModelDeployment`.

    Raises:
        NotFoundError: the directory or a file in it is missing.
        InvalidArgumentError: a file is malformed, or the model is not one that Headway runs.
    """
    if not directory.is_dir():
        raise NotFoundError(f"There is no directory {directory}.", hint="Give the path of a model directory.")
    spec = read_spec(directory, dtype=dtype, quantization=quantization, generation_config=generation_config)
    weight_files = find_weights(directory) if has_weights else ()
    tokenizer_config = _read_optional_json(directory / "tokenizer_config.json")
    return Checkpoint(
        directory=directory,
        spec=spec,
        weight_files=weight_files,
        weight_bytes=sum(file.stat().st_size for file in weight_files),
        tokenizer_file=_find_tokenizer(directory),
        chat_template=_read_chat_template(directory, tokenizer_config),
        bos_token=_special_token(directory, tokenizer_config, "bos_token"),
        eos_token=_special_token(directory, tokenizer_config, "eos_token"),
        sampling_defaults=_read_sampling_defaults(directory, spec, generation_config),
    )


def read_spec(
    directory: Path, *, dtype: str | None = None, quantization: str | None = None, generation_config: str = ""
) -> ModelSpec:
    """The shape of the model, from its configuration alone; arguments and errors as of `read_checkpoint`."""
    path = directory / "config.json"
    if not path.is_file():
        raise NotFoundError(
            f"{path} is missing.", hint="A model directory in Hugging Face format has a config.json at its top."
        )
    config = _read_json(path)
    if dtype is None and checkpoint_dtype(config) == "float16":
        dtype = "bfloat16"
    try:
        spec = spec_from_config(config, dtype=dtype, quantization=quantization)
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
    return path, _read_optional_json(path)


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
            _read_optional_json(_within(directory, entry.get("path"), source=path) / "config.json"),
        )
        for entry in _read_json_list(path)
    ]
    try:
        encoder = apply_modules(spec.encoder, modules)
    except HeadwayError as error:
        raise _in_file(path, error) from error
    longest = _read_optional_json(directory / "sentence_bert_config.json").get("max_seq_length")
    return replace(spec, encoder=encoder, max_position=min(spec.max_position, int(longest or spec.max_position)))


def find_weights(directory: Path) -> tuple[Path, ...]:
    """The safetensors files of a directory, in order; errors as of `read_checkpoint`."""
    index_path = directory / _INDEX_FILE
    single_path = directory / "model.safetensors"
    if not index_path.is_file():
        files = (single_path,) if single_path.is_file() else tuple(sorted(directory.glob("*.safetensors")))
        if not files:
            raise NotFoundError(
                f"{directory} holds no *.safetensors weights.",
                hint="Convert other formats with transformers: "
                "AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(DIR).",
            )
        return files
    weight_map = _read_json(index_path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise InvalidArgumentError(f"{index_path} has no weight_map.", hint="Download the file again.")
    files = tuple(sorted({_within(directory, name, source=index_path) for name in weight_map.values()}))
    for file in files:
        if not file.is_file():
            raise NotFoundError(
                f"{file} is missing, though {_INDEX_FILE} lists it.", hint="Download the missing shard."
            )
    return files


def _within(directory: Path, name: object, *, source: Path) -> Path:
    """The path of a file that another one names; InvalidArgumentError where it leads out of the directory, or is no
    name. Links are followed: caches of the hub consist of them.
    """
    if not isinstance(name, str) or Path(name).is_absolute() or ".." in Path(name).parts:
        raise InvalidArgumentError(
            f"{source} names {str(name)[:100]!r}, which is no path within {directory}.",
            hint="Do not use this checkpoint unless you know who made it.",
        )
    return directory / name


def _find_tokenizer(directory: Path) -> Path:
    path = directory / "tokenizer.json"
    if not path.is_file():
        raise NotFoundError(
            f"{path} is missing.",
            hint="Write it with transformers: AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR).",
        )
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
    token = tokenizer_config.get(name) or _read_optional_json(directory / "special_tokens_map.json").get(name)
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else ""


def _read_optional_json(path: Path) -> dict[str, Any]:
    return _read_json(path) if path.is_file() else {}


def _read_json(path: Path) -> dict[str, Any]:
    document = _parse_json(path)
    if not isinstance(document, dict):
        raise InvalidArgumentError(f"{path} must hold a JSON object.", hint="Download the file again.")
    return document


def _read_json_list(path: Path) -> list[dict[str, Any]]:
    document = _parse_json(path)
    if not isinstance(document, list) or not all(isinstance(item, dict) for item in document):
        raise InvalidArgumentError(f"{path} must hold a list of JSON objects.", hint="Download the file again.")
    return document


def _parse_json(path: Path) -> Any:
    if (num_bytes := path.stat().st_size) > _MAX_JSON_BYTES:
        raise InvalidArgumentError(
            f"{path} has {num_bytes} bytes; {_MAX_JSON_BYTES} are read at most.", hint="Download the file again."
        )
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{path} is not valid JSON: {error}.", hint="Download the file again.") from error
