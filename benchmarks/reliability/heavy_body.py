"""Bodies that ask for as much as one request may: what must do no harm to whoever is answered beside it."""

import random
from typing import Any

Body = dict[str, Any]

_WORDS = ("the", "train", "leaves", "at", "noon", "and", "comes", "back", "in", "time")
_MAX_OUTPUT_TOKENS = 48
_FIXED: dict[str, Body] = {
    "beams": {"beam_width": 16, "stream": False, "temperature": 0},
    "logprobs": {"logprobs": 20},
    "many samples": {"n": 128, "temperature": 1.0},
    "penalties": {"presence_penalty": 2.0, "frequency_penalty": -2.0, "repetition_penalty": 2.0},
    "prompt logprobs": {"prompt_logprobs": 20, "stream": False},
}
_REGEXES = ("(a|b|ab|ba){1,60}", "((x|y)*z){20}", "[a-z]{1,300}", "(a{1000}){1000}")


class HeavyBodies:
    """Draws bodies of /v1/completions without their model. Each is accepted, or refused for its size.

    Args:
        max_model_len: tokens of prompt and output together.
        vocab_size: token ids from 3 on that say something.
    """

    def __init__(self, chance: random.Random, *, max_model_len: int, vocab_size: int) -> None:
        self._chance = chance
        self._max_model_len = max_model_len
        self._vocab_size = vocab_size
        self._drawn = {
            "biases": self._biases,
            "choices": self._choices,
            "long prompt": self._long_prompt,
            "long text": self._long_text,
            "many prompts": self._many_prompts,
            "regex": self._regex,
            "schema": self._schema,
            "stops": self._stops,
        }

    def draw(self) -> tuple[str, Body]:
        """A body, and what is heavy of it."""
        chance = self._chance
        body: Body = {
            "prompt": "the train",
            "max_tokens": chance.randint(1, _MAX_OUTPUT_TOKENS),
            "ignore_eos": chance.random() < 0.5,
            "stream": chance.random() < 0.5,
            "temperature": chance.choice([0, 0.7, 1.5, 1e-50]),
            "seed": chance.randint(0, 99),
        }
        names = sorted(chance.sample(sorted({*_FIXED, *self._drawn}), chance.randint(1, 3)))
        for name in names:
            body |= _FIXED[name] if name in _FIXED else self._drawn[name]()
        if "structured_outputs" in body:
            body["ignore_eos"] = False
        return " + ".join(names), body

    def _long_prompt(self) -> Body:
        return {"prompt": self._tokens(self._max_model_len - _MAX_OUTPUT_TOKENS)}

    def _long_text(self) -> Body:
        """Megabytes that are tokenised, and then are too long."""
        return {"prompt": " ".join(self._chance.choices(_WORDS, k=self._chance.choice([50_000, 400_000])))}

    def _many_prompts(self) -> Body:
        return {"prompt": [self._tokens(64) for _ in range(64)]}

    def _biases(self) -> Body:
        ids = self._chance.sample(range(self._vocab_size), min(1024, self._vocab_size))
        words = [f"{self._chance.choice(_WORDS)} {number}" for number in range(128)]
        return {"logit_bias": {str(each): self._chance.choice([-100, 0.5, 100]) for each in ids}, "bad_words": words}

    def _stops(self) -> Body:
        return {"stop": ["".join(self._chance.choices("abc", k=256)) for _ in range(16)]}

    def _regex(self) -> Body:
        return {"structured_outputs": {"regex": f"{self._chance.choice(_REGEXES)}{self._chance.randint(0, 9999)}"}}

    def _schema(self) -> Body:
        names = [f"f{number}" for number in range(self._chance.choice([8, 64, 512]))]
        fields = {name: {"type": "string", "maxLength": 20} for name in names}
        return {"structured_outputs": {"json": {"type": "object", "properties": fields, "required": names}}}

    def _choices(self) -> Body:
        count = self._chance.choice([100, 16_384])
        return {"structured_outputs": {"choice": [f"{self._chance.choice(_WORDS)} {i}" for i in range(count)]}}

    def _tokens(self, count: int) -> list[int]:
        return [self._chance.randrange(3, self._vocab_size) for _ in range(count)]
