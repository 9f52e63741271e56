"""Adapters in the format of PEFT: what their directories hold."""

import hashlib
import json
from pathlib import Path

from headway.checkpoint.readable import telling_unreadable
from headway.core.adapter import Adapter
from headway.core.errors import InvalidArgumentError, NotFoundError

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_DIGEST_CHARS = 16


@telling_unreadable(field="directory")
def read_adapter(name: str, directory: Path) -> Adapter:
    """Reads the adapter in a directory.

    Raises:
        NotFoundError: a file of it is missing.
        InvalidArgumentError: it is no LoRA adapter, or may not be read.
    """
    for file in (_CONFIG, _WEIGHTS):
        if not (directory / file).is_file():
            raise NotFoundError(
                f"{directory / file} is missing.",
                hint=f"Name a directory with {_CONFIG} and {_WEIGHTS}, as PEFT saves a LoRA adapter.",
                field="directory",
            )
    config = (directory / _CONFIG).read_bytes()
    try:
        kind = json.loads(config).get("peft_type")
    except (ValueError, AttributeError) as error:
        raise InvalidArgumentError(f"{directory / _CONFIG} is no JSON object: {error}.", field="directory") from None
    if kind != "LORA":
        raise InvalidArgumentError(
            f"{directory / _CONFIG} has the peft_type {kind!r}; only LORA can be served.", field="directory"
        )
    digest = hashlib.sha256(config)
    with (directory / _WEIGHTS).open("rb") as weights:
        while chunk := weights.read(1 << 20):
            digest.update(chunk)
    return Adapter(name=name, directory=str(directory), digest=digest.hexdigest()[:_DIGEST_CHARS])
