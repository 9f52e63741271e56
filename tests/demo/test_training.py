"""Training: only answers are learnt, the loss falls, the budget holds."""

import torch

from deploy.demo.corpus import training_texts
from deploy.demo.llama import LlamaForCausalLM
from deploy.demo.make_model import demo_spec
from deploy.demo.tokenizer import train_tokenizer
from deploy.demo.training import IGNORED, TrainingPlan, batches, encode_dialogue, padded, train

TOKENIZER = train_tokenizer(training_texts(), vocab_size=512)
DIALOGUE = (
    {"role": "user", "content": "What is a block?"},
    {"role": "assistant", "content": "A block is a fixed number of slots."},
    {"role": "user", "content": "Thanks!"},
    {"role": "assistant", "content": "You are welcome."},
)


def test_targets_are_the_assistants_words_and_the_end_of_its_turn() -> None:
    token_ids, targets = encode_dialogue(TOKENIZER, DIALOGUE)
    wanted = [token_id for token_id in targets if token_id != IGNORED]
    assert TOKENIZER.decode(wanted, skip_special_tokens=False) == (
        "A block is a fixed number of slots.<|im_end|>\nYou are welcome.<|im_end|>\n"
    )
    for position, target in enumerate(targets[:-1]):
        assert target in (IGNORED, token_ids[position + 1])


def test_padding_has_no_targets() -> None:
    token_ids, targets = padded([([5, 6, 7], [6, 7, IGNORED]), ([5], [IGNORED])])
    assert token_ids.tolist() == [[5, 6, 7], [5, 0, 0]]
    assert targets.tolist() == [[6, 7, IGNORED], [IGNORED] * 3]


def test_batches_are_the_same_from_the_same_seed() -> None:
    plan = TrainingPlan(batch_size=4, seed=3)
    first, second = batches(TOKENIZER, plan), batches(TOKENIZER, plan)
    for _ in range(6):
        assert torch.equal(next(first)[0], next(second)[0])


def test_loss_falls() -> None:
    torch.set_num_threads(1)
    network = LlamaForCausalLM(demo_spec(TOKENIZER), seed=1)
    losses = [step.loss for step in train(network, TOKENIZER, TrainingPlan(num_steps=30, batch_size=8))]
    assert len(losses) == 30
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])


def test_training_stops_at_its_time_budget() -> None:
    torch.set_num_threads(1)
    network = LlamaForCausalLM(demo_spec(TOKENIZER), seed=1)
    ticks = iter(range(100))
    plan = TrainingPlan(num_steps=1000, batch_size=2, max_seconds=4)
    steps = list(train(network, TOKENIZER, plan, clock=lambda: float(next(ticks))))
    assert [step.share for step in steps] == [0.25, 0.5, 0.75, 1.0]
