"""`headway train` of a checkpoint directory, and `headway train export`: what transformers would have trained."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

from tests.cli.conftest import Run

BATCH, SEQ, STEPS, RATE = 8, 12, 3, 0.5
CONFIG = LlamaConfig(
    vocab_size=96, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    intermediate_size=48, max_position_embeddings=64, tie_word_embeddings=True,
)  # fmt: skip
JOB = f"""
model: model
profile: never
data: {{tensors: data.safetensors}}
batch: {BATCH}
seq: {SEQ}
steps: {STEPS}
method: inter-only
micro_batches: 4
optimizer: {{name: sgd, rate: {RATE}}}
"""


def test_a_directory_is_trained_by_a_pipeline_and_exported_as_one(
    headway: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(2)
    oracle = AutoModelForCausalLM.from_config(CONFIG)
    oracle.save_pretrained("model")
    Path("model/tokenizer.json").write_text("{}")
    tokens = torch.randint(96, (BATCH, SEQ))
    targets = torch.where(torch.rand(BATCH, SEQ) < 0.3, -100, torch.randint(96, (BATCH, SEQ)))
    save_file({"tokens": tokens, "targets": targets}, "data.safetensors")
    Path("job.yaml").write_text(JOB)

    trained = headway("train", "job.yaml", "--json", timeout_s=500)
    assert trained.returncode == 0, trained.stderr
    exported = headway("train", "export", "--out", "trained", timeout_s=300)
    assert exported.returncode == 0, exported.stderr

    losses = []
    for _ in range(STEPS):
        loss = functional.cross_entropy(oracle(tokens).logits.flatten(0, 1), targets.flatten())
        oracle.zero_grad()
        torch.autograd.backward(loss)
        with torch.no_grad():
            for parameter in oracle.parameters():
                parameter.sub_(parameter.grad, alpha=RATE)
        losses.append(loss.item())
    told = [json.loads(line)["step"]["loss"] for line in trained.stdout.splitlines()]
    assert told == pytest.approx(losses, rel=1e-5)
    found = dict(AutoModelForCausalLM.from_pretrained("trained").named_parameters())
    with torch.no_grad():
        for name, parameter in oracle.named_parameters():
            assert float((found[name] - parameter).norm() / parameter.norm()) < 1e-5, name
    assert sorted(path.name for path in Path("trained").iterdir()) == sorted(
        path.name for path in Path("model").iterdir()
    )
    again = headway("train", "export", "--out", "trained", timeout_s=300)
    assert (again.returncode, "trained exists" in again.stderr) == (1, True)


def test_a_directory_that_is_not_trained_is_refused_before_anything_starts(
    headway: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    GPT2Config(vocab_size=96, n_embd=32, n_head=4, n_layer=2, n_positions=64).save_pretrained("model")
    Path("data.safetensors").touch()
    Path("job.yaml").write_text(JOB)
    refused = headway("train", "job.yaml", timeout_s=300)
    assert (refused.returncode, "is not trained from its checkpoint: its family is gpt2" in refused.stderr) == (1, True)
    assert json.loads(headway("train", "list", "--json", timeout_s=300).stdout) == []
