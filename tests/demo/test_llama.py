"""The training network computes what transformers computes, on weights that were really trained."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

from deploy.demo.corpus import training_texts
from deploy.demo.llama import LlamaForCausalLM
from deploy.demo.make_model import demo_spec, make_demo_model
from deploy.demo.tokenizer import render_chat, train_tokenizer
from deploy.demo.training import TrainingPlan, train
from headway.core.hf_config import spec_from_config

PLAN = TrainingPlan(num_steps=3, batch_size=4, seed=11)
QUESTION = [{"role": "user", "content": "What is headway?"}]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return make_demo_model(tmp_path_factory.mktemp("demo") / "model", plan=PLAN)


@pytest.fixture(scope="module")
def network(directory: Path) -> LlamaForCausalLM:
    """The network of the checkpoint, trained once more from the seed."""
    tokenizer = train_tokenizer(training_texts(), vocab_size=1024)
    network = LlamaForCausalLM(demo_spec(tokenizer), seed=PLAN.seed)
    for _ in train(network, tokenizer, PLAN):
        pass
    return network


def test_logits_equal_those_of_transformers(directory: Path, network: LlamaForCausalLM) -> None:
    oracle = AutoModelForCausalLM.from_pretrained(directory)
    token_ids = torch.randint(network.spec.vocab_size, (3, 50), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(network(token_ids), oracle(token_ids).logits, atol=1e-4, rtol=0)


def test_training_is_the_same_every_time(directory: Path, network: LlamaForCausalLM) -> None:
    with safe_open(directory / "model.safetensors", framework="pt") as weights:
        for name, tensor in network.checkpoint_tensors().items():
            torch.testing.assert_close(weights.get_tensor(name), tensor, atol=0, rtol=0)


def test_config_reads_back_as_the_spec_that_was_trained(directory: Path, network: LlamaForCausalLM) -> None:
    spec = spec_from_config(json.loads((directory / "config.json").read_text()))
    assert spec.num_parameters == network.spec.num_parameters
    assert spec.tied_embeddings
    assert spec.eos_token_ids == network.spec.eos_token_ids


def test_chat_template_of_the_checkpoint_renders_what_was_trained_on(directory: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(directory)
    rendered = tokenizer.apply_chat_template(QUESTION, add_generation_prompt=True, tokenize=False)
    assert rendered == render_chat(QUESTION, add_generation_prompt=True)
    assert tokenizer.eos_token == "<|im_end|>"
