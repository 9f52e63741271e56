"""The service behind both protocols: models, keys, slots, and the way from a request to its deltas."""

import random
from collections.abc import Sequence
from typing import Any

from headway.core.infer import InferInput
from headway.gateway.answer_journal import AnswerBook
from headway.gateway.caller import Callers
from headway.gateway.config import GatewayConfig
from headway.gateway.constraint import check_guide
from headway.gateway.generation import Generator
from headway.gateway.infer.job import InferAnswer, make_infer_job
from headway.gateway.infer.run import Inferrer
from headway.gateway.infer.score import Scores, TextPairs, score
from headway.gateway.infer.sequences import tokenize
from headway.gateway.job import Arrival, Job, Prompt, check_num_sequences, make_job
from headway.gateway.key_ring import KeyRing
from headway.gateway.keys import ApiKeys, OperatorKeys, authorization_of, is_loopback
from headway.gateway.model import ServedModel
from headway.gateway.options import Options
from headway.gateway.prompt_tokenizer import MAX_INLINE_CHARS, PromptTokenizer
from headway.gateway.readiness import can_answer, waiting_for
from headway.gateway.request_id import job_id
from headway.gateway.scrape import scrape_targets
from headway.gateway.served_models import ServedModels
from headway.gateway.slots import BodyMemory, Slots, TenantPlaces
from headway.gateway.tenants import Tenants, read_tenants
from headway.gateway.threads import Threads
from headway.gateway.waker import Waker
from headway.observe.logging import request_id_var
from headway.observe.tracing import Tracing
from headway.rpc.credentials import OPERATOR
from headway.rpc.peers import Peers

_NUM_LARGE_BODIES = 16


class GatewayService:
    """The gateway's service, which HTTP handlers and the gRPC servicer share.

    Attributes:
        generator: runs the jobs that `make_job` makes.
        answers: keeps the streams that can be taken up again.
        callers: finds out whose requests are.
        threads: for long work on requests.
        max_body_bytes: of an HTTP request.
        max_sequences: that one request may generate.
        strict_fields: whether requests with fields that have no effect are refused.
    """

    def __init__(
        self,
        config: GatewayConfig,
        *,
        peers: Peers,
        served_models: ServedModels,
        generator: Generator,
        inferrer: Inferrer,
        key_ring: KeyRing,
        answers: AnswerBook,
        tracing: Tracing,
    ) -> None:
        credentials = config.credentials("gateway")
        self.served_models = served_models
        self.threads = Threads()
        self.prompt_tokenizer = PromptTokenizer(self.threads)
        self.generator = generator
        self.answers = answers
        self.tracing = tracing
        tenants = read_tenants(config.tenants) if config.tenants else Tenants()
        self.tenant_places = TenantPlaces(tenants.max_sequences)
        self.callers = Callers(tenants, ring=key_ring)
        self.keys = ApiKeys([*config.api_keys, *tenants.api_keys], ring=key_ring)
        self.operator_keys = OperatorKeys(
            [*config.admin_keys, *([] if credentials is None else [credentials.hashes[OPERATOR]])],
            guards_paths=bool(config.admin_keys) or not is_loopback(config.http_host),
            clients=self.keys,
            ring=key_ring,
        )
        self.slots = Slots(config.max_concurrency)
        self.body_memory = BodyMemory(_NUM_LARGE_BODIES * config.max_body_bytes)
        self.max_body_bytes = config.max_body_bytes
        self.max_sequences = config.max_request_sequences
        self.strict_fields = config.strict_fields
        self._peers = peers
        self._inferrer = inferrer
        self._waker = Waker(peers)

    def tenant_of(self, metadata: Sequence[tuple[str, str]]) -> str:
        """Whose a gRPC call is, before its message is here; it is counted later.

        Raises:
            UnauthenticatedError, UnavailableError: its key opens nothing.
            InvalidArgumentError: nobody has the name that it gives.
        """
        authorization = authorization_of(metadata, name="authorization") or ""
        self.keys.recognise(authorization)
        return self.callers.find(
            authorization=authorization, name=dict(metadata).get("x-headway-tenant", "")
        ).tenant.name

    async def awake(self, name: str) -> ServedModel:
        """A model to send a request to. One that sleeps is woken first: how long its sequences may be is known then.

        Raises:
            NotFoundError: there is no such model.
            UnavailableError: no model is served yet, or there is no room for one that sleeps.
        """
        model = await self.served_models.get(name)
        if model.num_replicas:
            return model
        await self._waker.wake(model.worker_model)
        await self.served_models.follower.catch_up()
        return await self.served_models.get(name)

    def check_options(self, model: ServedModel, options: Options, *, num_prompts: int) -> None:
        """Checks a request's options before any prompt is tokenised; InvalidArgumentError names the field at fault."""
        options.check(vocab_size=model.spec.vocab_size)
        field = "n" if num_prompts == 1 else "prompt"
        check_num_sequences(num_prompts * options.num_parallel, max_sequences=self.max_sequences, field=field)

    def new_id(self) -> str:
        """Unique, and with the id that the client gave its request."""
        return job_id(request_id_var.get())

    async def make_job(
        self, model: ServedModel, prompts: Sequence[Prompt], *, options: Options, arrival: Arrival
    ) -> Job:
        """A checked job under the current request id; `check_options` has passed its options.

        Raises:
            InvalidArgumentError: a length, or a constraint, that the model does not take.
            FailedPreconditionError: the model cannot be guided.
        """
        constraints = options.constraints
        bad_token_ids = await self.threads.run(
            lambda: constraints.bad_token_ids(model.tokenizer),
            is_long=sum(map(len, constraints.bad_words)) > MAX_INLINE_CHARS,
            tenant=arrival.tenant,
        )
        job = make_job(
            request_id=self.new_id(),
            model=model,
            prompts=prompts,
            options=options,
            arrival=arrival,
            random_seed=random.getrandbits(63),
            bad_token_ids=bad_token_ids,
        )
        if constraints.guide is not None:
            await check_guide(constraints.guide, model=model, field=constraints.guide_field)
        return job

    async def infer(
        self,
        model: ServedModel,
        inputs: Sequence[InferInput],
        *,
        field: str,
        truncate_to: int | None,
        arrival: Arrival,
    ) -> InferAnswer:
        """Tokenises, checks and computes; see `tokenize` and `Inferrer.infer`."""
        sequences = await tokenize(
            inputs, model=model, field=field, truncate_to=truncate_to, threads=self.threads, tenant=arrival.tenant
        )
        request_id = job_id(request_id_var.get())
        return await self._inferrer.infer(make_infer_job(request_id, model=model, sequences=sequences, arrival=arrival))

    async def score(self, model: ServedModel, pairs: TextPairs, *, truncate_to: int | None, arrival: Arrival) -> Scores:
        """Scores pairs of texts by a model; see `score` and `infer`."""

        async def infer(inputs: Sequence[InferInput], field: str) -> InferAnswer:
            return await self.infer(model, inputs, field=field, truncate_to=truncate_to, arrival=arrival)

        return await score(pairs, task=model.spec.task, infer=infer)

    def waiting_for(self) -> list[str]:
        """Returns what keeps the stack from answering for every model, in words; empty when it is ready."""
        return waiting_for(self.served_models, self._peers)

    def can_answer(self) -> bool:
        """Whether there is a router, and a worker for some model of the plan."""
        return can_answer(self.served_models, self._peers)

    def faults(self) -> list[str]:
        """Returns what is wrong with the stack though it answers, in words."""
        return [fault for fault in (self._peers.fault, self.served_models.follower.fault) if fault]

    def scrape_targets(self) -> list[dict[str, Any]]:
        """Returns the metrics addresses of the stack; see `scrape_targets`."""
        return scrape_targets(self._peers)
