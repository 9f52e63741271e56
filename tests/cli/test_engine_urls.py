"""Which servers the models of `headway up` have: --engine-url."""

from pathlib import Path

import pytest

from headway.cli import engine_choice
from headway.cli.engine_choice import check_limits, read_engines, read_servers
from headway.cli.models import read_models
from headway.core.errors import HeadwayError
from headway.core.plan.serving import EngineLimits, ModelDeployment
from headway.core.slo import Slo


def deployed(checkpoint: Path, *engines: str) -> tuple[ModelDeployment, ...]:
    return read_models(
        [f"a={checkpoint}", f"b={checkpoint}"],
        dtype=None,
        quantization=None,
        max_model_len=None,
        slo=Slo(),
        engines=read_engines(engines, ()),
    )


def test_each_server_is_of_a_model(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(engine_choice, "_check_server", lambda server, _: asked.append(server.url))
    only = deployed(checkpoint, "b=vllm-server")
    servers = read_servers(["http://one:1/", "b=http://two:2/?a=b"], only)
    assert [(server.model, server.url) for server in servers] == [("b", "http://one:1"), ("b", "http://two:2/?a=b")]
    assert asked == ["http://one:1", "http://two:2/?a=b"]
    assert read_servers([], deployed(checkpoint)) == ()


@pytest.mark.parametrize(
    ("engines", "urls", "words"),
    [
        (["a=vllm-server"], [], "'a' is to run on vllm-server, and there is no server of it"),
        (["vllm-server"], ["http://one:1"], "--engine-url http://one:1 is for no model on vllm-server"),
        ([], ["a=http://one:1"], "is for no model on vllm-server"),
        (["a=vllm-server"], ["http://one:1", "a=http://one:1"], "a server is named twice"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    checkpoint: Path, engines: list[str], urls: list[str], words: str
) -> None:
    with pytest.raises(HeadwayError, match=words) as refused:
        read_servers(urls, deployed(checkpoint, *engines))
    assert refused.value.field == "--engine-url"


def test_events_are_of_a_server(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_choice, "_check_server", lambda *_: None)
    models = deployed(checkpoint, "a=vllm-server")
    (only,) = read_servers(["http://one:1"], models, events=["tcp://one:5557"])
    assert only.events == "tcp://one:5557"
    urls = ["http://one:1", "http://two:1"]
    both = read_servers(urls, models, events=["http://two:1/=tcp://two:5557"])
    assert [server.events for server in both] == ["", "tcp://two:5557"]
    for text, words in (
        ("tcp://one:5557", "is for no server"),
        ("http://three:1=tcp://one:5557", "is for no server"),
        ("http://one:1=tcp://*:5557", "is no address of a publisher"),
        ("http://one:1=http://one:5557", "is no address of a publisher"),
    ):
        with pytest.raises(HeadwayError, match=words) as refused:
            read_servers(urls, models, events=[text])
        assert refused.value.field == "--engine-events"


def test_a_server_that_does_not_answer_is_named_once(checkpoint: Path) -> None:
    with pytest.raises(
        HeadwayError, match=r"^The vLLM server at http://127\.0\.0\.1:1 does not answer: .*\.$"
    ) as refused:
        read_servers(["http://127.0.0.1:1"], deployed(checkpoint, "a=vllm-server"))
    assert refused.value.hint == "Start it, or correct the URL."


def test_what_servers_decide_is_refused_by_name(checkpoint: Path) -> None:
    with pytest.raises(HeadwayError, match="--block-size is decided by the servers"):
        check_limits(EngineLimits(block_size=16), deployed(checkpoint, "vllm-server"), device="cpu", is_emulated=False)
    with pytest.raises(HeadwayError, match="a server that was started already computes the model"):
        read_engines(["a=vllm-server"], ["a=--enforce-eager"])
