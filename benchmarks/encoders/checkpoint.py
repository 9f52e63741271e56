"""A BERT with random weights in Hugging Face format, the same on every machine."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel

SEED = 33
VOCAB_SIZE = 30_522


def make_bert(directory: Path, *, num_layers: int, width: int) -> Path:
    """Writes the checkpoint to `directory` unless it is there already; returns the directory. Heads are 64 wide; the
    tokenizer knows numbers only, as requests are token ids."""
    if (directory / "tokenizer.json").exists():  # which is written last
        return directory
    torch.manual_seed(SEED)
    config = BertConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=width,
        num_hidden_layers=num_layers,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
    )
    BertModel(config, add_pooling_layer=False).save_pretrained(directory)
    tokenizer = Tokenizer(models.WordLevel({str(number): number for number in range(VOCAB_SIZE)}, unk_token="0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory
