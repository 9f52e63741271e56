"""The prompts that a client sends."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypedDict

Message: TypeAlias = Mapping[str, str]
"""One turn of a conversation: a `role` ('system', 'user' or 'assistant') and its `content`."""

Prompt: TypeAlias = str | Sequence[int] | Sequence[Message]
"""Text, token ids, or the messages of a conversation (rendered by the model's own chat template)."""


class GenerateOptions(TypedDict, total=False):
    """Options of `generate`; what is left out takes the model's default, or that of the OpenAI API.

    Keys:
        max_tokens: output tokens at most, per sequence.
        temperature: 0 is greedy.
        top_k, top_p, min_p: keep the k most probable tokens, the smallest set that reaches probability p, those
            at least min_p times as probable as the best.
        presence_penalty, frequency_penalty, repetition_penalty: discourage tokens that have occurred.
        seed: equal seeds draw equal tokens.
        stop: strings that end a sequence; they are not part of the text.
        stop_token_ids: tokens that end a sequence.
        ignore_eos: go on past the end-of-sequence token.
        min_tokens: output tokens before the sequence may end.
        logprobs: 0 for each token's own log probability, n for the n best besides.
        prompt_logprobs: the same for the prompt's tokens but the first; they come with a sequence's first chunk.
        n: sequences to generate.
        best_of: generate so many and return the n best by mean log probability per token; they come at the end.
        beam_width: beam search in place of sampling; the n best hypotheses come at the end.
        length_penalty, early_stopping: of a beam search, as in transformers ('true', 'false' or 'never').
        logit_bias: added to the logits of tokens, by their ids; in [-100, 100].
        bad_words: texts that must not appear.
        json_schema, regex, choice, grammar: a language that the output must belong to, one of: documents of a JSON
            schema (a mapping or its text), matches of a regular expression, one of several texts, a grammar (Lark or
            GBNF).
        cache_salt: only requests of one salt share cached prefixes.
        skip_special_tokens: whether special tokens leave no trace in the text, as they do not by default.
        include_stop_str_in_output: whether the text ends with the stop string, or the stop token, that ended it.
        slo_ttft_s, slo_tpot_s: objectives in seconds: to the first token, and per token after it. The request is
            refused at once (ResourceExhaustedError) when they cannot be met.
        slo_ms: objective in milliseconds: to the end of the answer.
        priority: the lowest goes first, on a server where requests wait by priority.
        request_id: appears in every log line; made up when left out.
        timeout_s: seconds for the whole answer.
    """

    max_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    seed: int
    stop: str | Sequence[str]
    stop_token_ids: Sequence[int]
    ignore_eos: bool
    min_tokens: int
    logprobs: int
    prompt_logprobs: int
    n: int
    best_of: int
    beam_width: int
    length_penalty: float
    early_stopping: str
    logit_bias: Mapping[int, float]
    bad_words: Sequence[str]
    json_schema: Mapping[str, Any] | str
    regex: str
    choice: Sequence[str]
    grammar: str
    cache_salt: str
    skip_special_tokens: bool
    include_stop_str_in_output: bool
    slo_ttft_s: float
    slo_tpot_s: float
    slo_ms: float
    priority: int
    request_id: str
    timeout_s: float
