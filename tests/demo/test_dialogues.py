"""Training data: only answers are learnt, rows hold whole dialogues, the same ones from the same seed."""

import torch

from deploy.demo.corpus import training_texts
from deploy.demo.dialogues import IGNORED, encode_dialogue, rows, training_tensors
from deploy.demo.tokenizer import train_tokenizer

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


def test_a_row_is_filled_with_dialogues_and_its_rest_has_no_targets() -> None:
    given = [([5, 6, 7], [6, 7, IGNORED]), ([1] * 9, [1] * 9), ([8, 9], [9, IGNORED]), ([3, 4], [4, IGNORED])]
    assert list(rows(iter(given), seq=6)) == [([5, 6, 7, 8, 9, 0], [6, 7, IGNORED, 9, IGNORED, IGNORED])]


def test_data_is_the_same_from_the_same_seed() -> None:
    first, again, other = (training_tensors(TOKENIZER, num_rows=40, seq=128, seed=seed) for seed in (3, 3, 4))
    assert first["tokens"].shape == first["targets"].shape == (40, 128)
    assert torch.equal(first["tokens"], again["tokens"])
    assert torch.equal(first["targets"], again["targets"])
    assert not torch.equal(first["tokens"], other["tokens"])
    assert bool((first["targets"] != IGNORED).any(dim=1).all())
