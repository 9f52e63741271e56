"""Prompts for the demo model: pieces of the dialogues that it was trained on, of any length."""

import random
from collections import deque
from pathlib import Path

from tokenizers import Tokenizer

from deploy.demo.corpus import dialogue_epoch
from deploy.demo.tokenizer import render_chat


class Corpus:
    """An endless text of training dialogues, in tokens."""

    def __init__(self, tokenizer_file: Path, *, seed: int) -> None:
        self._tokenizer = Tokenizer.from_file(str(tokenizer_file))
        self._generator = random.Random(seed)
        self._tokens: deque[int] = deque()

    def take(self, num_tokens: int) -> tuple[int, ...]:
        """The next tokens."""
        while len(self._tokens) < num_tokens:
            dialogues = dialogue_epoch(self._generator)
            texts = [render_chat(dialogue) for dialogue in dialogues]
            for encoding in self._tokenizer.encode_batch(texts, add_special_tokens=False):
                self._tokens.extend(encoding.ids)
        return tuple(self._tokens.popleft() for _ in range(num_tokens))
