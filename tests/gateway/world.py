"""All that a gateway needs around it, on real sockets: Redis, a plan, leases, a router and workers; and gateways."""

import asyncio
import json
import os
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import grpc
import httpx
from tokenizers import Tokenizer

from headway.core.latency import LatencyModel
from headway.core.plan.serving import Assignment, ModelDeployment, Prediction, ServingPlan
from headway.core.slo import Slo
from headway.store.membership import Member, Membership
from headway.store.plans import PlanStore
from headway.store.redis import Database
from tests.forked import ForkedProcess
from tests.gateway import collector, scripted_router, scripted_worker
from tests.gateway.collector import Collector
from tests.gateway.scripted_router import ScriptedRouter
from tests.gateway.scripted_worker import VOCAB_SIZE, ScriptedWorker
from tests.gateway.vocabularies import BOS, EOS, byte_level, sentencepiece
from tests.specs import llama_spec

R = TypeVar("R")

MODEL, PLAIN_MODEL = "tiny", "plain"
MAX_MODEL_LEN = 512
CHAT_TEMPLATE = (
    "{% if tools %}[tools]{{ tools | map(attribute='function.name') | join(' ') }}"
    '{# called by <tool_call>{"name": ..., "arguments": ...}</tool_call> #}{% endif %}'
    "{% for message in messages %}{% if message.role == 'system' and not loop.first %}"
    "{{ raise_exception('system comes first') }}{% endif %}"
    "[{{ message.role }}]{{ message.content }}{{ eos_token if mark_turns }}"
    "{% for call in message.tool_calls or [] %}<{{ call.function | tojson }}>{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


@dataclass
class Gateway:
    """A gateway process."""

    process: ForkedProcess
    url: str
    grpc_endpoint: str
    log: Path


class World:
    """Serves from a thread of its own. `worker` and `router` live here; tests look into them and bend them."""

    def __init__(self, redis_url: str, *, namespace: str, directory: Path) -> None:
        self.redis_url = redis_url
        self.namespace = namespace
        self.directory = directory
        self.worker = ScriptedWorker()
        self.router = ScriptedRouter()
        self.collector = Collector()
        self.members: list[Member] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="world", daemon=True)
        self._servers: list[grpc.aio.Server] = []
        self._database = Database.connect(redis_url, namespace=namespace)
        self._membership = Membership(self._database)

    def start(self) -> None:
        self._thread.start()
        self.run(self._start())

    def stop(self) -> None:
        self.run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Awaitable[R]) -> R:
        """Runs something in the world's thread."""

        async def wait() -> R:
            return await work

        return asyncio.run_coroutine_threadsafe(wait(), self._loop).result(30)

    def reset(self) -> None:
        """As at the start, once what was asked before is over."""
        wait_for(lambda: self.router.num_open == 0)
        self.router.fault = self.router.resumed_fault = None
        self.router.delay_s, self.router.is_sole_replica = 0.0, False
        self.router.decode_worker_id, self.router.source = "", None
        self.router.workers = {"worker-0": self.worker_endpoint}
        for log in (
            self.router.routed,
            self.router.leased,
            self.router.first_tokens,
            self.router.released,
            self.router.withdrawn,
        ):
            log.clear()
        self.worker.fail_submit = self.worker.fail_at = self.worker.move_at = None
        self.worker.leaves = False
        self.worker.step_s = 0.001
        self.worker.reply = ()
        self.worker.submitted.clear()
        self.worker.cancelled.clear()
        self.worker.num_cancel_messages = 0
        self.worker.groups.clear()
        self.worker.submit_groups.clear()

    @contextmanager
    def gateway(self, *flags: str) -> Iterator[Gateway]:
        """A gateway process that is ready."""
        http_port, grpc_port = free_port(), free_port()
        log = self.directory / f"gateway-{http_port}.log"
        arguments = ("--redis-url", self.redis_url, "--namespace", self.namespace)
        ports = ("--http-port", str(http_port), "--port", str(grpc_port))
        process = ForkedProcess(
            "headway.gateway", (*arguments, *ports, *flags), imports="headway.gateway.__main__", log=log
        )
        gateway = Gateway(process, f"http://127.0.0.1:{http_port}", f"127.0.0.1:{grpc_port}", log)
        try:
            wait_for(lambda: process.poll() is not None or is_ready(gateway), timeout_s=60, log=log)
            assert process.poll() is None, log.read_text()
            yield gateway
        finally:
            process.terminate()
            process.wait(20)

    async def _start(self) -> None:
        worker_server, worker_port = await scripted_worker.start(self.worker)
        router_server, router_port = await scripted_router.start(self.router)
        collector_server, collector_port = await collector.start(self.collector)
        self._servers = [worker_server, router_server, collector_server]
        self.collector_url = f"http://127.0.0.1:{collector_port}"
        self.worker_endpoint = f"127.0.0.1:{worker_port}"
        self.members = [
            member("router", "router-0", f"127.0.0.1:{router_port}"),
            member("worker", "worker-0", self.worker_endpoint, model=MODEL),
            member("worker", "worker-1", self.worker_endpoint, model=PLAIN_MODEL),
        ]
        await PlanStore(self._database).set_current(make_plan(self.directory), replaces="")
        self._keeper = asyncio.create_task(self._keep_leases())

    @contextmanager
    def without(self, leaving: Callable[[Member], bool]) -> Iterator[None]:
        """These members are not there meanwhile."""
        everyone = self.members
        self.members = [each for each in everyone if not leaving(each)]
        for each in everyone:
            if leaving(each):
                self.run(self._membership.withdraw(each))
        try:
            yield
        finally:
            self.members = everyone
            self.run(self._renew())

    async def _keep_leases(self) -> None:
        while True:
            await self._renew()
            await asyncio.sleep(0.5)

    async def _renew(self) -> None:
        for each in self.members:
            await self._membership.enter(each)

    async def _stop(self) -> None:
        self._keeper.cancel()
        await asyncio.wait({self._keeper})
        for server in self._servers:
            await server.stop(None)
        await self._database.close()


def member(kind: str, member_id: str, endpoint: str, *, model: str = "") -> Member:
    return Member(
        kind=kind,
        member_id=member_id,
        endpoint=endpoint,
        metrics_endpoint="",
        pid=os.getpid(),
        started_at_s=1.0,
        models=(model,) if model else (),
    )


def make_plan(directory: Path, *, plan_id: str = "plan-1") -> ServingPlan:
    """MODEL has a byte-level tokenizer and a chat template; PLAIN_MODEL a SentencePiece-like one and no template."""
    spec = llama_spec(
        vocab_size=VOCAB_SIZE,
        hidden_size=16,
        num_layers=1,
        num_heads=2,
        head_dim=8,
        intermediate_size=32,
        max_position=MAX_MODEL_LEN,
        eos_token_ids=(1,),
    )
    models = (
        ModelDeployment(
            name=MODEL,
            directory=str(write_checkpoint(directory / "tiny", byte_level(), template=CHAT_TEMPLATE)),
            spec=spec,
        ),
        ModelDeployment(
            name=PLAIN_MODEL,
            directory=str(write_checkpoint(directory / "plain", sentencepiece(), template=None)),
            spec=spec,
            slo=Slo(ttft_s=20.0, tpot_s=5.0),
        ),
    )
    assignments = tuple(_assignment(i, model.name) for i, model in enumerate(models))
    return ServingPlan(plan_id=plan_id, created_at_s=1.7e9, models=models, workers=(), assignments=assignments)


def _assignment(number: int, model: str) -> Assignment:
    latency = LatencyModel(
        base_s=0.001,
        per_prefill_token_s=0,
        per_prefill_pair_s=0,
        per_decode_s=0,
        per_context_token_s=0,
        relative_error=0,
        origin="estimated",
    )
    return Assignment(
        group_id=f"group-{number}",
        worker_id=f"worker-{number}",
        model=model,
        weight_bytes=0,
        kv_cache_bytes=0,
        reserved_bytes=0,
        num_blocks=64,
        block_size=16,
        max_num_seqs=64,
        max_num_batched_tokens=256,
        max_model_len=MAX_MODEL_LEN,
        enable_prefix_cache=True,
        prediction=Prediction(ttft_s=0.01, tpot_s=0.01, tpot_loaded_s=0.01, output_tokens_per_s=100, latency=latency),
    )


def write_checkpoint(directory: Path, tokenizer: Tokenizer, *, template: str | None) -> Path:
    """What a gateway reads of a checkpoint: everything but the weights."""
    directory.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": MAX_MODEL_LEN,
        "eos_token_id": 1,
    }
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "model.safetensors").touch()
    (directory / "tokenizer_config.json").write_text(json.dumps({"bos_token": BOS, "eos_token": EOS}))
    tokenizer.save(str(directory / "tokenizer.json"))
    if template is not None:
        (directory / "chat_template.jinja").write_text(template)
    return directory


def is_ready(gateway: Gateway) -> bool:
    return httpx.get(f"{gateway.url}/ready").status_code == 200


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(condition: Callable[[], bool], *, timeout_s: float = 60, log: Path | None = None) -> None:
    """Returns when `condition` holds; connection faults count as not yet."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            if condition():
                return
        except httpx.TransportError:
            pass
        time.sleep(0.01)
    raise AssertionError(f"not within {timeout_s} s\n{log.read_text()[-3000:] if log else ''}")
