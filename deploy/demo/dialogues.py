"""The dialogues as training data: rows of token ids, whose targets are what the assistant says."""

import random
from collections.abc import Iterator

import torch
from tokenizers import Tokenizer
from torch import Tensor

from deploy.demo.corpus import Dialogue, dialogue_epoch
from deploy.demo.tokenizer import render_chat

IGNORED = -100
"""Such a position has no target, as torch's cross-entropy has it."""

Encoded = tuple[list[int], list[int]]
"""Token ids, and the target of each."""


def training_tensors(tokenizer: Tokenizer, *, num_rows: int, seq: int, seed: int) -> dict[str, Tensor]:
    """What `headway train` reads: `tokens` and `targets`, each [num_rows, seq].

    A row holds as many dialogues, one after the other, as it has room for. Attention is causal, so the padding behind
    them changes nothing.
    """
    filled = rows(encoded_dialogues(tokenizer, random.Random(seed)), seq=seq)
    taken = [next(filled) for _ in range(num_rows)]
    return {"tokens": torch.tensor([row for row, _ in taken]), "targets": torch.tensor([wanted for _, wanted in taken])}


def encoded_dialogues(tokenizer: Tokenizer, generator: random.Random) -> Iterator[Encoded]:
    """Endless epochs."""
    while True:
        for dialogue in dialogue_epoch(generator):
            yield encode_dialogue(tokenizer, dialogue)


def rows(dialogues: Iterator[Encoded], *, seq: int) -> Iterator[Encoded]:
    """Puts dialogues one after the other into rows of `seq` tokens; one that is longer is left out."""
    token_ids: list[int] = []
    targets: list[int] = []
    for ids, wanted in dialogues:
        if len(ids) > seq:
            continue
        if len(token_ids) + len(ids) > seq:
            left = seq - len(token_ids)
            yield token_ids + [0] * left, targets + [IGNORED] * left
            token_ids, targets = [], []
        token_ids, targets = token_ids + ids, targets + wanted


def encode_dialogue(tokenizer: Tokenizer, dialogue: Dialogue) -> Encoded:
    """Token ids of the dialogue, and for each position the next token if the assistant says it."""
    token_ids: list[int] = []
    is_answer: list[bool] = []
    for text, answers in pieces(dialogue):
        new_ids = tokenizer.encode(text).ids
        token_ids += new_ids
        is_answer += [answers] * len(new_ids)
    targets = [token_id if wanted else IGNORED for token_id, wanted in zip(token_ids[1:], is_answer[1:], strict=True)]
    return token_ids, [*targets, IGNORED]


def pieces(dialogue: Dialogue) -> Iterator[tuple[str, bool]]:
    """Cuts the dialogue's text where the assistant begins and ends; True for what it says itself."""
    done = ""
    for index, message in enumerate(dialogue):
        answers = message["role"] == "assistant"
        if answers:
            prompt = render_chat(dialogue[:index], add_generation_prompt=True)
            yield prompt[len(done) :], False
            done = prompt
        text = render_chat(dialogue[: index + 1])
        yield text[len(done) :], answers
        done = text
