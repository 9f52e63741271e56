"""The safetensors files of a model directory, and the index that says which tensor is in which. Needs no torch."""

from pathlib import Path

from headway.checkpoint.json_file import read_json
from headway.checkpoint.readable import check_readable, telling_unreadable
from headway.core.errors import InvalidArgumentError, NotFoundError

WEIGHTS_FILE, INDEX_FILE = "model.safetensors", "model.safetensors.index.json"


@telling_unreadable()
def find_weights(directory: Path) -> tuple[Path, ...]:
    """The safetensors files of a directory, in order, which may all be read; errors as of `read_checkpoint`."""
    files = _find(directory)
    for file in files:
        check_readable(file)
    return files


def _find(directory: Path) -> tuple[Path, ...]:
    index_path = directory / INDEX_FILE
    single_path = directory / WEIGHTS_FILE
    if not index_path.is_file():
        files = (single_path,) if single_path.is_file() else tuple(sorted(directory.glob("*.safetensors")))
        if not files:
            raise NotFoundError(
                f"{directory} holds no *.safetensors weights.",
                hint="Convert other formats with transformers: "
                "AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(DIR).",
            )
        return files
    files = tuple(sorted({within(directory, name, source=index_path) for name in read_weight_map(directory).values()}))
    for file in files:
        if not file.is_file():
            raise NotFoundError(f"{file} is missing, though {INDEX_FILE} lists it.", hint="Download the missing shard.")
    return files


def read_weight_map(directory: Path) -> dict[str, object]:
    """By the tensors' names what the index calls the file of each; InvalidArgumentError where it has none."""
    path = directory / INDEX_FILE
    weight_map = read_json(path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise InvalidArgumentError(f"{path} has no weight_map.", hint="Download the file again.")
    return weight_map


def within(directory: Path, name: object, *, source: Path) -> Path:
    """The path of a file that another one names; InvalidArgumentError where it leads out of the directory, or is no
    name. Links are followed: caches of the hub consist of them.
    """
    if not isinstance(name, str) or Path(name).is_absolute() or ".." in Path(name).parts:
        raise InvalidArgumentError(
            f"{source} names {str(name)[:100]!r}, which is no path within {directory}.",
            hint="Do not use this checkpoint unless you know who made it.",
        )
    return directory / name
