"""JSON files of a model directory, which may be anything that someone made."""

import json
from pathlib import Path
from typing import Any

from headway.core.errors import InvalidArgumentError

_MAX_BYTES = 128 * 1024 * 1024  # an index of 100,000 tensors has a tenth of that


def read_optional_json(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def read_json(path: Path) -> dict[str, Any]:
    document = _parse_json(path)
    if not isinstance(document, dict):
        raise InvalidArgumentError(f"{path} must hold a JSON object.", hint="Download the file again.")
    return document


def read_json_list(path: Path) -> list[dict[str, Any]]:
    document = _parse_json(path)
    if not isinstance(document, list) or not all(isinstance(item, dict) for item in document):
        raise InvalidArgumentError(f"{path} must hold a list of JSON objects.", hint="Download the file again.")
    return document


def _parse_json(path: Path) -> Any:
    if (num_bytes := path.stat().st_size) > _MAX_BYTES:
        raise InvalidArgumentError(
            f"{path} has {num_bytes} bytes; {_MAX_BYTES} are read at most.", hint="Download the file again."
        )
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{path} is not valid JSON: {error}.", hint="Download the file again.") from error
