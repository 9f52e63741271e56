"""Counts how much a body asks for. It is counted before anything is looked at more closely: millions of texts take
seconds to check one by one, and many more to tokenise.
"""

from collections.abc import Mapping
from typing import Any

from headway.core.errors import InvalidArgumentError
from headway.gateway.bounds import MAX_MESSAGES, check_num_entries
from headway.gateway.constraint import MAX_BAD_WORDS, MAX_BIASES, MAX_CHOICES
from headway.gateway.infer.sequences import check_num_inputs
from headway.gateway.job import check_num_sequences

MAX_PROMPT_TOKENS = 1 << 20
MAX_DEPTH = 128

# Of lists and mappings, by the names of their fields.
_MAX_ENTRIES = {
    "messages": MAX_MESSAGES,
    "tools": 1024,
    "tokens": MAX_PROMPT_TOKENS,
    "logit_bias": MAX_BIASES,
    "bad_words": MAX_BAD_WORDS,
    "guided_choice": MAX_CHOICES,
}


def check_size(body: Mapping[str, Any], *, max_sequences: int) -> None:
    """InvalidArgumentError where a list, such as that of the prompts, has more entries than one request may have.

    What is no such list is for the body's schema to judge.
    """
    prompt = body.get("prompt")
    if isinstance(prompt, list):
        if _is_batch(prompt):
            check_num_sequences(len(prompt), max_sequences=max_sequences, field="prompt")
            num_tokens = sum([len(item) for item in prompt if isinstance(item, list)])
        else:
            num_tokens = len(prompt)
        check_num_entries("prompt", num_tokens, MAX_PROMPT_TOKENS, what="token ids")
    for field in ("input", "documents", "text_1", "text_2"):
        if _is_batch(body.get(field)):
            check_num_inputs(len(body[field]), field=field)
    for field, max_entries in _MAX_ENTRIES.items():
        if isinstance(value := body.get(field), (list, dict)):
            check_num_entries(field, len(value), max_entries)
    if isinstance(outputs := body.get("structured_outputs"), dict) and isinstance(outputs.get("choice"), list):
        check_num_entries("structured_outputs.choice", len(outputs["choice"]), MAX_CHOICES)


def check_depth(body: Mapping[str, Any], content: bytes) -> None:
    """InvalidArgumentError where lists and objects are nested deeper than anything reads that follows."""
    if content.count(b"[") + content.count(b"{") <= MAX_DEPTH:
        return
    level: list[Any] = [body]
    for _ in range(MAX_DEPTH):
        children = [child for node in level for child in (node.values() if isinstance(node, dict) else node)]
        level = [child for child in children if isinstance(child, (dict, list))]
        if not level:
            return
    raise InvalidArgumentError(f"The body is nested deeper than {MAX_DEPTH} levels.", hint="Send a flatter document.")


def _is_batch(value: Any) -> bool:
    """Token ids of one prompt are a list, too."""
    return isinstance(value, list) and value != [] and not isinstance(value[0], int)
