"""Teaches the demo model its dialogues: AdamW on the assistant's tokens, within a time budget."""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from deploy.demo.corpus import Dialogue, dialogue_epoch
from deploy.demo.llama import LlamaForCausalLM
from deploy.demo.tokenizer import render_chat

BATCHES_PER_SORT = 4
IGNORED = -100  # cross_entropy's own default: such a position has no target


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """Settings of the training.

    Attributes:
        num_steps: optimiser steps.
        batch_size: dialogues a step.
        max_learning_rate: after the warm-up; it then falls to zero with the steps or the time, whichever is ahead.
        max_seconds: wall-clock budget; a slow machine stops after fewer steps.
        seed: of weights, dialogues and their order.
    """

    num_steps: int = 520
    batch_size: int = 16
    max_learning_rate: float = 3e-3
    warm_up_share: float = 0.05
    max_seconds: float = 75.0
    seed: int = 7


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """Progress after one step: share of the plan done (0 to 1), and the batch's mean loss in nats per token."""

    share: float
    loss: float


def train(
    network: LlamaForCausalLM,
    tokenizer: Tokenizer,
    plan: TrainingPlan,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[TrainingStep]:
    """Trains in place, one step for each item taken."""
    optimiser = torch.optim.AdamW(network.parameters(), betas=(0.9, 0.95), weight_decay=0.01, fused=True)
    start_s, share = clock(), 0.0
    for num_done, (token_ids, targets) in enumerate(batches(tokenizer, plan), start=1):
        if share >= 1:
            return
        set_learning_rate(optimiser, plan, share)
        loss = next_token_loss(network, token_ids, targets)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        share = max(num_done / plan.num_steps, (clock() - start_s) / plan.max_seconds)
        yield TrainingStep(min(share, 1.0), loss.item())


def set_learning_rate(optimiser: torch.optim.Optimizer, plan: TrainingPlan, share: float) -> None:
    """Raises the rate to the maximum over the warm-up, then lowers it straight to zero."""
    rising = (share + 1 / plan.num_steps) / plan.warm_up_share
    falling = (1 - share) / (1 - plan.warm_up_share)
    for group in optimiser.param_groups:
        group["lr"] = plan.max_learning_rate * min(rising, falling)


def next_token_loss(network: LlamaForCausalLM, token_ids: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy over positions that have a target; the head runs on those alone."""
    counted = targets != IGNORED
    hidden = network.model(token_ids)[counted]
    return functional.cross_entropy(network.lm_head(hidden), targets[counted])


def batches(tokenizer: Tokenizer, plan: TrainingPlan) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields endless batches (token ids, targets), each [batch_size, longest dialogue of the batch].

    Dialogues of about the same length go together, so that little of a batch is padding.
    """
    generator = random.Random(plan.seed)
    num_taken = BATCHES_PER_SORT * plan.batch_size
    pending: list[Dialogue] = []
    while True:
        while len(pending) < num_taken:
            pending += dialogue_epoch(generator)
        taken, pending = pending[:num_taken], pending[num_taken:]
        rows = sorted((encode_dialogue(tokenizer, dialogue) for dialogue in taken), key=lambda row: len(row[0]))
        starts = list(range(0, num_taken, plan.batch_size))
        generator.shuffle(starts)
        for start in starts:
            yield padded(rows[start : start + plan.batch_size])


def padded(rows: list[tuple[list[int], list[int]]]) -> tuple[Tensor, Tensor]:
    """Stacks rows of unequal length. Attention is causal, so padding behind a row changes nothing in it."""
    length = max(len(token_ids) for token_ids, _ in rows)
    token_ids = [ids + [0] * (length - len(ids)) for ids, _ in rows]
    targets = [wanted + [IGNORED] * (length - len(wanted)) for _, wanted in rows]
    return torch.tensor(token_ids), torch.tensor(targets)


def encode_dialogue(tokenizer: Tokenizer, dialogue: Dialogue) -> tuple[list[int], list[int]]:
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
