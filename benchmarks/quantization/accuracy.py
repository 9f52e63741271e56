"""How far the logits of a model with rounded weights are from those of the model as it was stored."""

import random
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from deploy.demo.corpus import dialogue_epoch
from deploy.demo.dialogues import IGNORED, encode_dialogue
from headway.checkpoint.model_directory import read_checkpoint
from headway.core.model import ModelSpec
from headway.models.attention import AttentionContext
from headway.models.layout import alone
from headway.models.loader import load_model
from headway.models.model import Model
from headway.runner.kv_pool import KvPool

CPU = torch.device("cpu")
SEED = 123
NUM_DIALOGUES = 200
NUM_RANDOM, RANDOM_LENGTH = 8, 128


@dataclass(frozen=True, slots=True)
class Text:
    """Token ids, and at each position the token that is to be predicted there, or IGNORED."""

    token_ids: list[int]
    targets: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Rounded against kept weights, over the positions that have a target.

    Attributes:
        logit_deviation: standard deviation of the logits themselves, to judge the errors by.
        agreement: share of positions whose best token is the same.
        divergence: mean Kullback-Leibler divergence of the next token's distribution, in nats.
        kept_perplexity, rounded_perplexity: of the targets.
    """

    num_positions: int
    logit_deviation: float
    mean_error: float
    max_error: float
    agreement: float
    divergence: float
    kept_perplexity: float
    rounded_perplexity: float


def dialogue_texts(directory: Path) -> list[Text]:
    """Dialogues as the demo model was trained on, phrased anew; the assistant's words are the targets."""
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    dialogues = dialogue_epoch(random.Random(SEED))[:NUM_DIALOGUES]
    return [Text(*encode_dialogue(tokenizer, dialogue)) for dialogue in dialogues]


def random_texts(vocab_size: int) -> list[Text]:
    """Random tokens, for a model that knows no text."""
    generator = random.Random(SEED)
    rows = [[generator.randrange(vocab_size) for _ in range(RANDOM_LENGTH)] for _ in range(NUM_RANDOM)]
    return [Text(row, [*row[1:], IGNORED]) for row in rows]


@torch.inference_mode()
def compare(directory: Path, texts: list[Text], *, dtype: str, quantization: str) -> Accuracy:
    """Loads the model twice, one after the other, and runs every text through both."""
    targets = torch.tensor([target for text in texts for target in text.targets])
    wanted = targets != IGNORED
    targets = targets[wanted]
    kept = _logits(directory, texts, dtype=dtype, quantization=None)[wanted]
    rounded = _logits(directory, texts, dtype=dtype, quantization=quantization)[wanted]
    errors = (rounded - kept).abs()
    divergence = functional.kl_div(
        rounded.log_softmax(dim=1), kept.log_softmax(dim=1), log_target=True, reduction="batchmean"
    )
    return Accuracy(
        num_positions=len(kept),
        logit_deviation=float(kept.std()),
        mean_error=float(errors.mean()),
        max_error=float(errors.max()),
        agreement=float((rounded.argmax(dim=1) == kept.argmax(dim=1)).float().mean()),
        divergence=float(divergence),
        kept_perplexity=float(functional.cross_entropy(kept, targets).exp()),
        rounded_perplexity=float(functional.cross_entropy(rounded, targets).exp()),
    )


def _logits(directory: Path, texts: list[Text], *, dtype: str, quantization: str | None) -> Tensor:
    checkpoint = read_checkpoint(directory, dtype=dtype, quantization=quantization)
    model = load_model(checkpoint, layout=alone(checkpoint.spec), device=CPU)
    return torch.cat([_forward(model, checkpoint.spec, text.token_ids) for text in texts])


def _forward(model: Model, spec: ModelSpec, token_ids: list[int]) -> Tensor:
    """Runs one sequence in one block; returns logits [T, vocab_size]."""
    num_tokens = len(token_ids)
    positions = torch.arange(num_tokens)
    context = AttentionContext(
        positions=positions,
        own_positions=positions,
        slot_mapping=positions,
        block_tables=torch.zeros((1, 1), dtype=torch.int32),
        seq_lens=torch.tensor([num_tokens], dtype=torch.int32),
        query_start=torch.tensor([0, num_tokens], dtype=torch.int32),
    )
    cache = KvPool(spec, num_blocks=1, block_size=num_tokens, device=CPU).layers
    hidden = model.forward(torch.tensor(token_ids), context, cache)
    logits = model.compute_logits(hidden)
    assert logits is not None
    return logits
