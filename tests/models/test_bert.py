"""Encoders against transformers: mixed lengths in one flat batch, types, positions, pooling and scores."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForSequenceClassification

from headway.checkpoint.model_directory import read_checkpoint
from headway.core.encoder import Pooling
from headway.core.infer import InferSequence
from headway.runner.encoder_runner import EncoderRunner
from tests.encoders import make_encoder

LENGTHS = (1, 2, 7, 7, 16, 7, 33, 70, 64, 2)
TOLERANCE = 1e-5
FAMILIES = ("bert", "roberta", "xlm-roberta", "distilbert")


def load(directory: Path) -> EncoderRunner:
    return EncoderRunner(read_checkpoint(directory), num_threads=1)


def sequences(runner: EncoderRunner, *, with_types: bool = False) -> list[InferSequence]:
    generator = random.Random(3)
    made = []
    for length in LENGTHS:
        # Ids of special tokens stay out: RoBERTa counts positions of padding tokens otherwise.
        token_ids = tuple(generator.randrange(6, runner.spec.vocab_size) for _ in range(length))
        num_first = generator.randrange(length + 1)
        types = (0,) * num_first + (1,) * (length - num_first) if with_types else ()
        made.append(InferSequence(token_ids=token_ids, token_type_ids=types))
    return made


def run(runner: EncoderRunner, batch: list[InferSequence]) -> np.ndarray:
    return np.stack([np.frombuffer(vector, "<f4") for vector in runner.execute(batch)])


@torch.inference_mode()
def reference(model: torch.nn.Module, batch: list[InferSequence], *, output: str) -> list[torch.Tensor]:
    """Each sequence alone: [T, hidden] or [labels]."""
    results = []
    for sequence in batch:
        arguments = {"input_ids": torch.tensor([sequence.token_ids])}
        if sequence.token_type_ids:
            arguments["token_type_ids"] = torch.tensor([sequence.token_type_ids])
        results.append(model(**arguments)[output][0])
    return results


@pytest.mark.parametrize("family", FAMILIES)
def test_mean_pooled_hidden_states_equal_transformers(tmp_path: Path, family: str) -> None:
    runner = load(make_encoder(tmp_path, family))
    batch = sequences(runner)
    hidden = reference(AutoModel.from_pretrained(tmp_path).eval(), batch, output="last_hidden_state")
    expected = np.stack([states.mean(dim=0).numpy() for states in hidden])
    np.testing.assert_allclose(run(runner, batch), expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(("pooling", "normalizes"), [(Pooling.CLS, True), (Pooling.MEAN, True), (Pooling.MAX, False)])
def test_a_sentence_transformers_directory_decides_pooling(tmp_path: Path, pooling: Pooling, normalizes: bool) -> None:
    runner = load(make_encoder(tmp_path, "bert", pooling=pooling, normalizes=normalizes))
    batch = sequences(runner)
    hidden = reference(AutoModel.from_pretrained(tmp_path).eval(), batch, output="last_hidden_state")
    reduce = {
        Pooling.CLS: lambda states: states[0],
        Pooling.MEAN: lambda states: states.mean(dim=0),
        Pooling.MAX: lambda states: states.max(dim=0).values,
    }[pooling]
    expected = torch.stack([reduce(states) for states in hidden])
    if normalizes:
        expected = torch.nn.functional.normalize(expected, dim=1)
    np.testing.assert_allclose(run(runner, batch), expected.numpy(), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("num_labels", [1, 3])
def test_label_scores_equal_transformers(tmp_path: Path, family: str, num_labels: int) -> None:
    runner = load(make_encoder(tmp_path, family, num_labels=num_labels))
    batch = sequences(runner, with_types=family == "bert")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    logits = torch.stack(reference(model, batch, output="logits"))
    expected = logits.sigmoid() if num_labels == 1 else logits.softmax(dim=1)
    np.testing.assert_allclose(run(runner, batch), expected.numpy(), rtol=0, atol=TOLERANCE)


def test_the_pooler_of_bert_equals_transformers(tmp_path: Path) -> None:
    """The classifier is the identity here, and so is the score function: the scores are the pooler's output."""
    hidden_size = 64
    make_encoder(
        tmp_path,
        "bert",
        num_labels=hidden_size,
        score_function="torch.nn.modules.linear.Identity",
        edit=lambda model: (
            torch.nn.init.eye_(model.classifier.weight),
            torch.nn.init.zeros_(model.classifier.bias),
        ),
    )
    runner = load(tmp_path)
    batch = sequences(runner, with_types=True)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    expected = torch.stack(reference(model.bert, batch, output="pooler_output"))
    np.testing.assert_allclose(run(runner, batch), expected.numpy(), rtol=0, atol=TOLERANCE)


def test_a_masked_language_model_embeds(tmp_path: Path) -> None:
    """Its head is left out, whatever the checkpoint calls it."""
    for family in FAMILIES:
        directory = tmp_path / family
        runner = load(make_encoder(directory, family, is_masked_lm=True))
        batch = sequences(runner)
        hidden = reference(AutoModel.from_pretrained(directory).eval(), batch, output="last_hidden_state")
        expected = np.stack([states.mean(dim=0).numpy() for states in hidden])
        np.testing.assert_allclose(run(runner, batch), expected, rtol=0, atol=TOLERANCE)


def test_a_vector_does_not_depend_on_its_batch(tmp_path: Path) -> None:
    runner = load(make_encoder(tmp_path, "bert"))
    batch = sequences(runner)
    together = run(runner, batch)
    alone = np.concatenate([run(runner, [sequence]) for sequence in batch])
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-6)


@pytest.mark.parametrize("options", [{"dtype": "bfloat16"}, {"quantization": "int8"}], ids=str)
@pytest.mark.parametrize("num_labels", [0, 3])
def test_rounded_weights_stay_close(tmp_path: Path, options: dict[str, str], num_labels: int) -> None:
    make_encoder(tmp_path, "bert", num_labels=num_labels)
    exact = load(tmp_path)
    rounded = EncoderRunner(read_checkpoint(tmp_path, **options), num_threads=1)
    batch = sequences(exact)
    a, b = run(exact, batch), run(rounded, batch)
    cosines = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    assert cosines.min() > 0.99
