"""Which files of a place are a model's: its configuration, its tokenizer, and its weights as safetensors."""

import re
from collections.abc import Collection

_TOP = re.compile(r"[^/.][^/]*\.(safetensors|json|jinja|txt|model|tiktoken)")
_MODULE = re.compile(r"[0-9]+_\w+/[^/.][^/]*\.(safetensors|json)")
"""Of sentence-transformers: 1_Pooling/config.json."""
_MERGED = re.compile(r"consolidated.*\.safetensors")
"""The same weights once more, under other names of tensors."""
_HIDDEN_BY = "model"


def select(names: Collection[str]) -> set[str]:
    """Of the names of files, those that are a model's. Other formats of weights, pictures and code are left where they
    are."""
    found = {name for name in names if _TOP.fullmatch(name) or _MODULE.fullmatch(name)}
    if any(name.startswith(_HIDDEN_BY) and name.endswith(".safetensors") for name in found):
        found = {name for name in found if not _MERGED.fullmatch(name)}
    return found
