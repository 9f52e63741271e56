"""A model on a GPU, as a user serves it: `headway up --device cuda`."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from transformers import AutoModelForCausalLM

from headway.kernels.cuda import build
from tests.checkpoints import make_checkpoint
from tests.integration.stack import RunningStack

if not torch.cuda.is_available():
    pytest.skip("not run: there is no GPU here", allow_module_level=True)
if not build.is_current():
    pytest.skip("not run: the CUDA kernels are not compiled (`make cuda`)", allow_module_level=True)

PROMPTS = ["trains run", "the headway between two trains", "1234567890 + 42", "Über die Brücke fährt früh " * 12]
NUM_TOKENS = 48


def test_a_stack_on_a_gpu_gives_the_tokens_of_transformers(tmp_path: Path) -> None:
    """In float32, all prompts at the same time."""
    checkpoint = make_checkpoint(tmp_path / "tiny", "llama", max_position_embeddings=2048)
    options = ("--device", "cuda", "--max-model-len", "1024", "--no-profile")
    stack = RunningStack(tmp_path / "state", {"tiny": checkpoint}, *options).start()

    def ask(prompt: str) -> dict[str, Any]:
        body = {"model": "tiny", "prompt": prompt, "max_tokens": NUM_TOKENS, "temperature": 0, "ignore_eos": True}
        response = httpx.post(f"{stack.url}/v1/completions", json=body | {"return_token_ids": True}, timeout=120)
        assert response.status_code == 200, response.text
        (choice,) = response.json()["choices"]
        return dict(choice)

    try:
        with ThreadPoolExecutor(len(PROMPTS)) as pool:
            answers = list(pool.map(ask, PROMPTS))
        status = stack.headway("status").stdout
    finally:
        stack.stop()
    assert torch.cuda.get_device_name() in status
    reference = AutoModelForCausalLM.from_pretrained(checkpoint).eval()
    for answer in answers:
        given = torch.tensor([answer["prompt_token_ids"]])
        wanted = reference.generate(given, max_new_tokens=NUM_TOKENS, min_new_tokens=NUM_TOKENS, do_sample=False)
        assert answer["token_ids"] == wanted[0, given.shape[1] :].tolist()
