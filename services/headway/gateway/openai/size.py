"""Counts how much a body asks for. It is counted before anything is looked at more closely: millions of texts take
seconds to check one by one, and many more to tokenise.
"""

from collections.abc import Mapping
from typing import Any

from headway.gateway.infer.sequences import check_num_inputs
from headway.gateway.job import check_num_sequences


def check_size(body: Mapping[str, Any], *, max_sequences: int) -> None:
    """InvalidArgumentError where a list of prompts, inputs or documents has more entries than one request may have.

    What is no such list is for the body's schema to judge.
    """
    if _is_batch(body.get("prompt")):
        check_num_sequences(len(body["prompt"]), max_sequences=max_sequences, field="prompt")
    for field in ("input", "documents"):
        if _is_batch(body.get(field)):
            check_num_inputs(len(body[field]), field=field)


def _is_batch(value: Any) -> bool:
    """Token ids of one prompt are a list, too."""
    return isinstance(value, list) and value != [] and not isinstance(value[0], int)
