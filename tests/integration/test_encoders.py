"""Embeddings, classes, rankings and scores from a whole stack, beside a model that generates."""

import asyncio
import base64
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import openai
import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModel, AutoModelForSequenceClassification

from headway.client import AsyncClient, Client
from headway.core.encoder import Pooling
from headway.core.errors import InvalidArgumentError
from tests.documented import document_of, post
from tests.encoders import make_encoder
from tests.integration.stack import RunningStack, wait_for

TEXTS = ["the headway between two trains", "signals", "one more train an hour costs nothing but rolling stock"]
QUERY = "what is the headway"
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("encoders")


@pytest.fixture(scope="module")
def stack(directory: Path, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    models = {
        "tiny": checkpoint,
        "bert": make_encoder(directory / "bert", "bert", pooling=Pooling.MEAN, normalizes=True),
        "judge": make_encoder(directory / "judge", "bert", seed=1, num_labels=1),
        "moods": make_encoder(directory / "moods", "roberta", seed=2, num_labels=3),
    }
    state_dir = tmp_path_factory.mktemp("stack")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADWAY_RESUME_TIMEOUT_S", "120")  # of a model that one worker alone has, on a busy machine
        running = RunningStack(state_dir, models, "--workers", "4", "--max-model-len", "128", "--no-profile").start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def client(stack: RunningStack) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{stack.url}/v1", api_key="none", max_retries=0)


def tokenizer_of(directory: Path, model: str) -> Tokenizer:
    """The one that was written: training breaks ties by chance."""
    return Tokenizer.from_file(str(directory / model / "tokenizer.json"))


@torch.inference_mode()
def embeddings(directory: Path, texts: list[str]) -> np.ndarray:
    model, tokenizer = AutoModel.from_pretrained(directory / "bert").eval(), tokenizer_of(directory, "bert")
    hidden = [model(torch.tensor([tokenizer.encode(text).ids])).last_hidden_state[0] for text in texts]
    pooled = torch.stack([states.mean(dim=0) for states in hidden])
    return torch.nn.functional.normalize(pooled, dim=1).numpy()


@torch.inference_mode()
def relevance(directory: Path, query: str, documents: list[str]) -> list[float]:
    model = AutoModelForSequenceClassification.from_pretrained(directory / "judge").eval()
    scores = []
    for document in documents:
        encoding = tokenizer_of(directory, "judge").encode(query, document)
        types = torch.tensor([encoding.type_ids])
        logits = model(torch.tensor([encoding.ids]), token_type_ids=types).logits
        scores.append(float(logits.sigmoid()[0, 0]))
    return scores


@pytest.mark.parametrize("encoding_format", ["float", "base64", None])
def test_the_openai_client_gets_transformers_embeddings(
    client: openai.OpenAI, directory: Path, encoding_format: str | None
) -> None:
    arguments = {"encoding_format": encoding_format} if encoding_format else {}
    answer = client.embeddings.create(model="bert", input=TEXTS, **arguments)
    assert [item.index for item in answer.data] == [0, 1, 2]
    rows = [item.embedding for item in answer.data]
    if encoding_format == "base64":  # asked for by name, it is left as it came
        rows = [np.frombuffer(base64.b64decode(row), "<f4") for row in rows]
    np.testing.assert_allclose(np.array(rows), embeddings(directory, TEXTS), rtol=0, atol=TOLERANCE)
    num_tokens = sum(len(tokenizer_of(directory, "bert").encode(text).ids) for text in TEXTS)
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == num_tokens


def test_an_input_is_a_text_texts_tokens_or_lists_of_tokens(client: openai.OpenAI, directory: Path) -> None:
    token_ids = [tokenizer_of(directory, "bert").encode(text).ids for text in TEXTS]
    together = [item.embedding for item in client.embeddings.create(model="bert", input=token_ids).data]
    alone = [client.embeddings.create(model="bert", input=text).data[0].embedding for text in TEXTS]
    np.testing.assert_allclose(together, alone, rtol=0, atol=TOLERANCE)
    single = client.embeddings.create(model="bert", input=token_ids[0]).data
    np.testing.assert_allclose(single[0].embedding, alone[0], rtol=0, atol=TOLERANCE)


def test_dimensions_shorten_a_vector_to_length_one(client: openai.OpenAI, directory: Path) -> None:
    row = np.array(client.embeddings.create(model="bert", input=TEXTS[0], dimensions=16).data[0].embedding)
    expected = embeddings(directory, TEXTS[:1])[0, :16]
    np.testing.assert_allclose(row, expected / np.linalg.norm(expected), rtol=0, atol=TOLERANCE)


def test_documents_come_by_relevance(stack: RunningStack, directory: Path) -> None:
    documents = [TEXTS[0], {"text": TEXTS[1], "id": 7}, TEXTS[2]]
    body = {"model": "judge", "query": QUERY, "documents": documents, "top_n": 2}
    answer = httpx.post(f"{stack.url}/v1/rerank", json=body).json()
    scores = relevance(directory, QUERY, TEXTS)
    best = sorted(range(3), key=lambda i: -scores[i])[:2]
    assert [result["index"] for result in answer["results"]] == best
    for result in answer["results"]:
        assert result["relevance_score"] == pytest.approx(scores[result["index"]], abs=TOLERANCE)
        assert result["document"] == {"text": TEXTS[result["index"]]}
    assert answer["usage"]["total_tokens"] > 0
    plain = httpx.post(f"{stack.url}/v1/rerank", json=body | {"return_documents": False}).json()
    assert all("document" not in result for result in plain["results"])


def test_a_pair_is_scored_by_who_judges_pairs_and_by_who_embeds(stack: RunningStack, directory: Path) -> None:
    def scores(model: str, text_1: object, text_2: object) -> list[float]:
        body = {"model": model, "text_1": text_1, "text_2": text_2}
        answer = httpx.post(f"{stack.url}/v1/score", json=body).json()
        assert [each["index"] for each in answer["data"]] == list(range(len(answer["data"])))
        assert answer["usage"]["total_tokens"] > 0
        return [each["score"] for each in answer["data"]]

    assert scores("judge", QUERY, [TEXTS[0], {"text": TEXTS[1]}]) == pytest.approx(
        relevance(directory, QUERY, TEXTS[:2]), abs=TOLERANCE
    )
    rows = embeddings(directory, TEXTS)
    assert scores("bert", TEXTS[0], TEXTS) == pytest.approx([float(rows[0] @ row) for row in rows], abs=TOLERANCE)
    assert scores("bert", TEXTS[:2], TEXTS[1:]) == pytest.approx(
        [float(rows[0] @ rows[1]), float(rows[1] @ rows[2])], abs=TOLERANCE
    )
    ranking = {"model": "bert", "query": TEXTS[2], "documents": TEXTS}
    ranked = httpx.post(f"{stack.url}/v1/rerank", json=ranking).json()["results"]
    assert ranked[0] == {"index": 2, "relevance_score": pytest.approx(1), "document": {"text": TEXTS[2]}}
    assert scores("judge", TEXTS[:2], [TEXTS[2]] * 2) == pytest.approx(
        [relevance(directory, text, TEXTS[2:])[0] for text in TEXTS[:2]], abs=TOLERANCE
    )


def test_classes_equal_transformers(stack: RunningStack, directory: Path) -> None:
    answer = httpx.post(f"{stack.url}/v1/classify", json={"model": "moods", "input": TEXTS}).json()
    model = AutoModelForSequenceClassification.from_pretrained(directory / "moods").eval()
    for text, item in zip(TEXTS, answer["data"], strict=True):
        with torch.inference_mode():
            probs = model(torch.tensor([tokenizer_of(directory, "moods").encode(text).ids])).logits.softmax(dim=1)[0]
        np.testing.assert_allclose(item["probs"], probs.numpy(), rtol=0, atol=TOLERANCE)
        assert item["num_classes"] == 3
        assert item["label"] == f"LABEL_{int(probs.argmax())}"


def test_clients_of_vllm_and_cohere_find_them_under_their_names(stack: RunningStack) -> None:
    ranking = {"model": "judge", "query": QUERY, "documents": TEXTS}
    for paths, body in (
        (("/v1/classify", "/classify"), {"model": "moods", "input": TEXTS}),
        (("/v1/score", "/score"), {"model": "judge", "text_1": QUERY, "text_2": TEXTS}),
        (("/v1/rerank", "/rerank", "/v2/rerank"), ranking),
    ):
        answers = [httpx.post(f"{stack.url}{path}", json=body).json() for path in paths]
        told = [answer.get("data") or answer["results"] for answer in answers]
        assert told == [told[0]] * len(paths)


BAD_REQUESTS = {
    "no input": ("embeddings", {"model": "bert"}, "input"),
    "an empty list": ("embeddings", {"model": "bert", "input": []}, "input"),
    "an empty text": ("embeddings", {"model": "bert", "input": ["x", ""]}, "input[1]"),
    "too long": ("embeddings", {"model": "bert", "input": [7] * 129}, "input"),
    "an unknown token": ("embeddings", {"model": "bert", "input": [[5], [9, 4000]]}, "input[1][1]"),
    "mixed items": ("embeddings", {"model": "bert", "input": ["x", 3]}, "input"),
    "a wrong type": ("embeddings", {"model": "bert", "input": 3}, "input"),
    "an unknown encoding": ("embeddings", {"model": "bert", "input": "x", "encoding_format": "hex"}, "encoding_format"),
    "too many dimensions": ("embeddings", {"model": "bert", "input": "x", "dimensions": 65}, "dimensions"),
    "embeddings of a decoder": ("embeddings", {"model": "tiny", "input": "x"}, "model"),
    "embeddings of a classifier": ("embeddings", {"model": "moods", "input": "x"}, "model"),
    "classes of an embedder": ("classify", {"model": "bert", "input": "x"}, "model"),
    "ranking by three labels": ("rerank", {"model": "moods", "query": "x", "documents": ["y"]}, "model"),
    "no documents": ("rerank", {"model": "judge", "query": "x", "documents": []}, "documents"),
    "a document of another kind": (
        "rerank",
        {"model": "judge", "query": "x", "documents": [{"title": "y"}]},
        "documents[0]",
    ),
    "none of the best": ("rerank", {"model": "judge", "query": "x", "documents": ["y"], "top_n": 0}, "top_n"),
    "scores by three labels": ("score", {"model": "moods", "text_1": "x", "text_2": "y"}, "model"),
    "no text to score": ("score", {"model": "judge", "text_1": "x", "text_2": []}, "text_2"),
    "texts that do not pair up": ("score", {"model": "judge", "text_1": ["x", "y"], "text_2": ["y"] * 3}, "text_1"),
    "a text that is too long to compare": (
        "score",
        {"model": "bert", "text_1": "train " * 200, "text_2": "y"},
        "text_1",
    ),
    "a completion": ("completions", {"model": "bert", "prompt": "x"}, "model"),
    "a chat": ("chat/completions", {"model": "bert", "messages": [{"role": "user", "content": "x"}]}, "model"),
}


@pytest.mark.parametrize(("path", "body", "param"), BAD_REQUESTS.values(), ids=BAD_REQUESTS.keys())
def test_bad_requests_get_the_openai_error_body(
    stack: RunningStack, path: str, body: dict[str, object], param: str
) -> None:
    response = httpx.post(f"{stack.url}/v1/{path}", json=body)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param
    assert error["message"]


def test_an_unknown_field_is_ignored_and_named(stack: RunningStack) -> None:
    body = {"model": "bert", "input": "x"}
    plain = httpx.post(f"{stack.url}/v1/embeddings", json=body)
    response = httpx.post(f"{stack.url}/v1/embeddings", json=body | {"pooling": "cls"})
    assert response.status_code == 200, response.text
    assert response.headers["x-headway-ignored"] == "pooling"
    assert response.json()["data"] == plain.json()["data"]


def test_what_is_too_long_is_cut_when_that_is_asked_for(stack: RunningStack) -> None:
    body = {"model": "bert", "input": " ".join(["train"] * 200)}
    refused = httpx.post(f"{stack.url}/v1/embeddings", json=body)
    assert refused.json()["error"]["code"] == "context_length_exceeded"
    for limit, num_tokens in ((-1, 128), (10, 10)):
        answer = httpx.post(f"{stack.url}/v1/embeddings", json=body | {"truncate_prompt_tokens": limit}).json()
        assert answer["usage"]["prompt_tokens"] == num_tokens
    ranking = {"model": "judge", "query": QUERY, "documents": [body["input"]], "truncate_prompt_tokens": -1}
    assert httpx.post(f"{stack.url}/v1/rerank", json=ranking).json()["usage"]["prompt_tokens"] == 128


def test_the_sdk_embeds_classifies_and_reranks(stack: RunningStack, directory: Path) -> None:
    with Client(state_dir=stack.state_dir) as client:
        answer = client.embed(TEXTS, model="bert")
        np.testing.assert_allclose(answer.vectors, embeddings(directory, TEXTS), rtol=0, atol=TOLERANCE)
        assert answer.usage.prompt_tokens > 0
        assert client.embed(TEXTS[0], model="bert", dimensions=4).vectors[0][:1]
        ranked = client.rerank(QUERY, TEXTS, model="judge", top_n=1)
        scores = relevance(directory, QUERY, TEXTS)
        assert ranked[0].document == TEXTS[int(np.argmax(scores))]
        assert client.score(QUERY, TEXTS, model="judge") == pytest.approx(scores, abs=TOLERANCE)
        rows = embeddings(directory, TEXTS)
        assert client.score(TEXTS, TEXTS[::-1], model="bert") == pytest.approx(
            [float(a @ b) for a, b in zip(rows, rows[::-1], strict=True)], abs=TOLERANCE
        )
        assert client.rerank(TEXTS[1], TEXTS, model="bert")[0].index == 1
        with pytest.raises(InvalidArgumentError, match="does not score texts in pairs"):
            client.rerank(QUERY, TEXTS, model="moods")
        with pytest.raises(InvalidArgumentError, match="text_1 has 2 texts and text_2 has 3"):
            client.score(TEXTS[:2], [QUERY] * 3, model="judge")
        with pytest.raises(InvalidArgumentError) as refused:
            client.rerank(QUERY, [], model="judge")
        assert refused.value.field == "text_2"
        classes = client.classify(TEXTS, model="moods")
        assert [max(item.scores, key=item.scores.__getitem__) for item in classes] == [item.label for item in classes]
        with pytest.raises(InvalidArgumentError, match="does not"):
            client.embed("x", model="tiny")
        with pytest.raises(InvalidArgumentError, match="does not generate"):
            client.generate_text("x", model="bert")
        tasks = {model.name: model.spec.task for model in client.models() if model.spec}
        assert tasks == {"tiny": "generate", "bert": "embed", "judge": "classify", "moods": "classify"}


async def test_requests_that_arrive_together_share_steps(stack: RunningStack, directory: Path) -> None:
    async with AsyncClient(state_dir=stack.state_dir) as client:
        answers = await asyncio.gather(*(client.embed(TEXTS, model="bert") for _ in range(16)))
    expected = embeddings(directory, TEXTS)
    for answer in answers:
        np.testing.assert_allclose(answer.vectors, expected, rtol=0, atol=TOLERANCE)


def test_the_command_line_embeds_and_shows_tasks(stack: RunningStack, directory: Path) -> None:
    result = stack.headway("embed", *TEXTS, "--model", "bert")
    assert result.returncode == 0, result.stderr
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    np.testing.assert_allclose(rows, embeddings(directory, TEXTS), rtol=0, atol=TOLERANCE)
    refused = stack.headway("embed", "x", "--model", "tiny")
    assert refused.returncode == 1
    assert "does not give embeddings" in refused.stderr or "does not" in refused.stderr
    assert "classify" in stack.headway("status").stdout
    assert "embed" in {model["task"] for model in httpx.get(f"{stack.url}/v1/models").json()["data"]}


def test_a_request_whose_worker_is_killed_is_answered_by_its_successor(stack: RunningStack) -> None:
    token_ids = [[6 + (i + j) % 300 for j in range(100)] for i in range(2048)]
    body = {"model": "bert", "input": token_ids, "encoding_format": "base64"}
    name = next(w["worker_id"] for w in stack.status()["controller"]["workers"] if w["model"] == "bert")
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(httpx.post, f"{stack.url}/v1/embeddings", json=body, timeout=150)
        wait_for(lambda: int(stack.status()["fleet"].get("num_in_flight", 0)) > 0)
        stack.kill(name)
        response = answer.result()
    assert response.status_code == 200, response.text
    rows = [item["embedding"] for item in response.json()["data"]]
    assert len(rows) == 2048
    assert rows[0] == rows[300]


def test_answers_are_as_documented(stack: RunningStack) -> None:
    document = document_of(stack.url)
    for path, body in (
        ("/v1/embeddings", {"model": "bert", "input": TEXTS}),
        ("/v1/embeddings", {"model": "bert", "input": [1, 2], "encoding_format": "base64", "dimensions": 2}),
        ("/v1/classify", {"model": "moods", "input": TEXTS}),
        ("/v1/rerank", {"model": "judge", "query": QUERY, "documents": TEXTS, "top_n": 2}),
        ("/v1/rerank", {"model": "judge", "query": QUERY, "documents": TEXTS, "return_documents": False}),
        ("/v1/score", {"model": "judge", "text_1": QUERY, "text_2": TEXTS}),
    ):
        assert post(document, path, body).status_code == 200
