"""The command `headway up`."""

import asyncio
import os
from pathlib import Path

import typer
from rich.console import Console

from headway.cli import up_options as options
from headway.cli.backend_choice import check_backends, with_backends
from headway.cli.claim import claim
from headway.cli.emulation import parse_emulation
from headway.cli.engine_choice import check_limits, check_names, find_vllm, read_engines, read_servers
from headway.cli.idle_choice import with_idle
from headway.cli.models import read_models
from headway.cli.options import CatalogueFile, StateDir
from headway.cli.parser_choice import with_parsers
from headway.cli.ports import take_port
from headway.cli.worker_count import count_vllm, count_workers
from headway.client.stack import default_state_dir
from headway.core.deployment import Deployment, EmulatedDevices, GatewayOptions, WorkerOptions
from headway.core.engine_kind import EngineKind
from headway.core.errors import InvalidArgumentError
from headway.core.line import QueuePolicy
from headway.core.plan.serving import EngineLimits
from headway.core.slo import Slo
from headway.core.tls_files import CA_VARIABLE, CERT_VARIABLE, KEY_VARIABLE, TlsFiles

_GATEWAY = GatewayOptions()

app = typer.Typer(add_completion=False)


@app.command()
def up(
    *,
    model: options.Models,
    workers: options.Workers = None,
    threads: options.Threads = 0,
    no_bind_cores: options.NoBindCores = False,
    memory: options.Memory = None,
    device: options.Device = "cpu",
    emulate: options.Emulate = None,
    stage_profiles: options.StageProfiles = None,
    engine: options.Engines = None,
    engine_url: options.EngineUrls = None,
    engine_events: options.EngineEvents = None,
    engine_args: options.EngineArgs = None,
    tool_parser: options.ToolParsers = None,
    reasoning_parser: options.ReasoningParsers = None,
    backend: options.Backends = None,
    unload_idle: options.UnloadIdle = None,
    dtype: options.Dtype = None,
    quantization: options.Quantization = None,
    kv_cache_memory: options.KvCacheMemory = None,
    max_model_len: options.MaxModelLen = None,
    max_num_seqs: options.MaxNumSeqs = None,
    max_num_batched_tokens: options.MaxNumBatchedTokens = None,
    max_num_prefill_tokens: options.MaxNumPrefillTokens = None,
    block_size: options.BlockSize = None,
    swap_space: options.SwapSpace = None,
    preemption: options.Preemption = None,
    speculative_tokens: options.SpeculativeTokens = None,
    no_prefix_cache: options.NoPrefixCache = False,
    generation_config: options.GenerationConfig = "auto",
    tp: options.Tp = None,
    pp: options.Pp = None,
    cp: options.Cp = None,
    stage_layers: options.StageLayers = None,
    cp_ffn: options.CpFfn = None,
    prefill_workers: options.PrefillWorkers = None,
    decode_workers: options.DecodeWorkers = None,
    host: options.Host = "127.0.0.1",
    port: options.Port = 8000,
    grpc_port: options.GrpcPort = 0,
    api_key: options.ApiKeys = None,
    max_body_bytes: options.MaxBodyBytes = None,
    max_concurrency: options.MaxConcurrency = _GATEWAY.max_concurrency,
    gateways: options.Gateways = _GATEWAY.count,
    slo_ttft_ms: options.SloTtftMs = None,
    slo_tpot_ms: options.SloTpotMs = None,
    slo_ms: options.SloMs = None,
    tenants: options.Tenants = None,
    strict_fields: options.StrictFields = False,
    queue_policy: options.QueuePolicy = "least-slack",
    traffic_retention: options.TrafficRetention = None,
    answer_overhead: options.AnswerOverhead = None,
    state_dir: StateDir = None,
    no_profile: options.NoProfile = False,
    catalogue: CatalogueFile = None,
    log_level: options.LogLevel = "info",
    otlp_endpoint: options.OtlpEndpoint = None,
    tls: options.Tls = False,
    detach: options.Detach = False,
) -> None:
    """Start a stack on this machine and serve models."""
    slo = Slo(ttft_s=_seconds(slo_ttft_ms), tpot_s=_seconds(slo_tpot_ms), e2e_s=_seconds(slo_ms))
    emulated = _emulated(emulate, workers=workers, memory=memory, stage_profiles=stage_profiles, catalogue=catalogue)
    engines = read_engines(engine or (), engine_args or ())
    models = read_models(
        model,
        dtype=dtype,
        quantization=quantization,
        max_model_len=max_model_len,
        slo=slo,
        is_emulated=bool(emulated),
        generation_config=generation_config,
        engines=engines,
    )
    check_names(engines, models)
    models = with_parsers(models, tool_parser or (), reasoning_parser or ())
    models = with_backends(models, backend or (), is_emulated=bool(emulated))
    models = with_idle(models, unload_idle or ())
    limits = EngineLimits(
        block_size=block_size,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        kv_cache_bytes=kv_cache_memory,
        enable_prefix_cache=False if no_prefix_cache else None,
        max_num_prefill_tokens=max_num_prefill_tokens,
        host_cache_bytes=swap_space,
        preemption=preemption,
        num_draft_tokens=speculative_tokens,
        tp=tp,
        pp=pp,
        cp=cp,
        cp_ffn=cp_ffn,
        stage_layers=stage_layers or (),
        prefill_workers=prefill_workers,
        decode_workers=decode_workers,
    )
    check_limits(limits, models, device=device, is_emulated=bool(emulated))
    check_backends(models, limits, device=device)
    servers = read_servers(engine_url or (), models, events=engine_events or ())
    computed = tuple(model for model in models if model.engine is not EngineKind.VLLM_SERVER)
    num_vllm = count_vllm(workers, computed, limits)
    if not emulated:
        worker_options = WorkerOptions(
            count=len(servers) + (count_workers(workers, computed, limits) if computed else 0),
            device=device,
            num_threads=threads,
            memory_bytes=memory or 0,
            cores=() if no_bind_cores else None,
            num_vllm=num_vllm,
            vllm_python=find_vllm() if num_vllm else "",
            vllm_devices=limits.parallel.tp if num_vllm else 1,
            servers=servers,
        )
    else:
        worker_options = WorkerOptions(
            count=count_workers(sum(kind.count for kind in emulated), models, limits),
            device="cuda",
            num_threads=1,
            memory_bytes=min(kind.memory_bytes for kind in emulated),
            emulated=emulated,
        )
    if catalogue is not None:
        _share_catalogue(catalogue)
    directory = state_dir or default_state_dir()
    claim(directory)
    _encrypt(directory, has_local_authority=tls)
    gateway = GatewayOptions(
        host=host,
        port=take_port(host, port, option="--port"),
        grpc_port=take_port(host, grpc_port, option="--grpc-port"),
        api_keys=tuple(api_key or _keys_from_environment()),
        tenants=str(tenants or ""),
        max_body_bytes=_GATEWAY.max_body_bytes if max_body_bytes is None else max_body_bytes,
        max_concurrency=max_concurrency,
        count=gateways,
        strict_fields=strict_fields,
    )
    deployment = Deployment(
        models=models,
        workers=worker_options,
        gateway=gateway,
        limits=limits,
        profile=not no_profile and not emulated,  # there is nothing to measure
        log_level=log_level,
        otlp_endpoint=otlp_endpoint,
        stage_profiles=str(stage_profiles or ""),
        queue_policy=QueuePolicy(queue_policy),
        traffic_retention_s=traffic_retention,
        answer_overhead_s=answer_overhead or 0.0,
    )
    _launch(directory, deployment, detach=detach)


def _emulated(
    text: str | None,
    *,
    workers: int | None,
    memory: int | None,
    stage_profiles: Path | None,
    catalogue: Path | None,
) -> tuple[EmulatedDevices, ...]:
    """The devices that --emulate asks for; none without it."""
    if text is None:
        if stage_profiles is not None:
            raise InvalidArgumentError(
                "--stage-profiles are for emulated devices.", hint="Give --emulate 16xV100.", field="--stage-profiles"
            )
        return ()
    if workers is not None:
        raise InvalidArgumentError(
            "--emulate says how many workers there are.", hint="Leave --workers out.", field="--workers"
        )
    from headway.core.catalogue import read_catalogue

    return parse_emulation(text, memory_bytes=memory, catalogue=read_catalogue(catalogue))


def _share_catalogue(path: Path) -> None:
    """Names the catalogue in the environment, which every process of the stack inherits. InvalidArgumentError where the
    file is at fault."""
    from headway.core.catalogue import read_catalogue

    read_catalogue(path)
    os.environ["HEADWAY_CATALOGUE"] = str(path)


def _encrypt(state_dir: Path, *, has_local_authority: bool) -> None:
    """Names the certificates in the environment, which every process of the stack inherits: local ones, where they are
    asked for. InvalidArgumentError where they cannot be used."""
    if has_local_authority:
        from headway.cli.local_authority import keep_certificate  # imports cryptography, which is slow

        os.environ.update(keep_certificate(state_dir).environment)
    elif (files := TlsFiles.of_environment(os.environ)) is not None:
        from headway.rpc.certificates import Certificates

        if not files.cert:
            raise InvalidArgumentError(
                f"{CERT_VARIABLE} is not set: the processes of a stack need a certificate.",
                hint=f"Set it and {KEY_VARIABLE}; or give --tls, or unset {CA_VARIABLE}.",
                field=CERT_VARIABLE,
            )
        Certificates(files)


def _launch(state_dir: Path, deployment: Deployment, *, detach: bool) -> None:
    """Starts the stack in the background or the foreground. It imports only what that needs, so that it starts
    sooner."""
    if detach:
        from headway.cli.detached import start_detached

        start_detached(state_dir, deployment)
    else:
        from headway.cli.foreground import run_foreground

        asyncio.run(run_foreground(state_dir, deployment, console=Console()))


def _keys_from_environment() -> list[str]:
    return [key for key in os.environ.get("HEADWAY_API_KEYS", "").split(",") if key]


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1e3
