"""What computes the models that `headway up` was asked for: --engine, --engine-args, and what they rule out."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headway.core.engine_args import check_engine, check_engine_args
from headway.core.engine_kind import EngineKind, Feature
from headway.core.engine_limits import check_model, lacking
from headway.core.engine_server import EngineServer
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.plan.serving import EngineLimits, ModelDeployment

VLLM_PYTHON = "HEADWAY_VLLM_PYTHON"
_BUILT = Path(__file__).resolve().parents[3] / "build" / "vllm" / ".venv" / "bin" / "python"
_CPU_BLOCK_SIZE, _CPU_LATENT_BLOCK_SIZE = 32, 16
"""vLLM's attention on the CPU takes blocks of so many tokens, or a multiple; its latent attention those of 16 only."""
_VERSION = "from headway.worker.vllm.environment import vllm_version\nprint(vllm_version())"
_VERSION_TIMEOUT_S = 60
_OPTIONS = {
    "tp": "--tp",
    "pp": "--pp",
    "cp": "--cp",
    "prefill_workers": "--prefill-workers",
    "host_cache_bytes": "--swap-space",
    "preemption": "--preemption",
    "num_draft_tokens": "--speculative-tokens",
    "max_num_prefill_tokens": "--max-num-prefill-tokens",
}
"""Options of `headway up` by the limit that each sets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """What computes a model, and the flags that its engine is handed."""

    kind: EngineKind = EngineKind.HEADWAY
    args: str = ""


def read_engines(engines: Sequence[str], engine_args: Sequence[str]) -> dict[str, EngineChoice]:
    """Reads `ENGINE` and `NAME=ENGINE`, and `ARGS` and `NAME=ARGS`, by model; '' is any that is not named.

    Raises:
        InvalidArgumentError: an engine is unknown, or arguments are for none, or contradict what Headway decides.
    """
    kinds = {name: _kind(text) for name, text in (_split(each, "--engine") for each in engines)}
    arguments = dict(_split_args(each) for each in engine_args)
    choices = {name: EngineChoice(kind=kind, args=arguments.get("", "")) for name, kind in kinds.items()}
    for name, args in arguments.items():
        check_engine_args(args)
        kind = kinds.get(name, kinds.get("", EngineKind.HEADWAY))
        if name or EngineKind.VLLM not in kinds.values():
            check_engine(kind, args)
        if name:
            choices[name] = EngineChoice(kind=kind, args=args)
    return {
        name: choice if choice.kind is EngineKind.VLLM else replace(choice, args="") for name, choice in choices.items()
    }


def engine_of(name: str, engines: Mapping[str, EngineChoice]) -> EngineChoice:
    """What computes the model of that name."""
    return engines.get(name, engines.get("", EngineChoice()))


def with_engine(model: ModelDeployment, engines: Mapping[str, EngineChoice]) -> ModelDeployment:
    """The model with what computes it. InvalidArgumentError where its engine cannot."""
    choice = engine_of(model.name, engines)
    check_model(model.name, model.spec, choice.kind)
    return replace(model, engine=choice.kind, engine_args=choice.args)


def check_names(engines: Mapping[str, EngineChoice], models: Sequence[ModelDeployment]) -> None:
    """InvalidArgumentError where an engine is named for a model that is not there."""
    names = {model.name for model in models}
    for name in engines:
        if name and name not in names:
            raise InvalidArgumentError(
                f"--engine {name}=... names no model; there are {', '.join(sorted(names))}.", field="--engine"
            )


def check_limits(limits: EngineLimits, models: Sequence[ModelDeployment], *, device: str, is_emulated: bool) -> None:
    """InvalidArgumentError where an option asks for something that an engine lacks, or servers decide."""
    others = {model.engine for model in models} - {EngineKind.HEADWAY}
    if not others:
        return
    if {model.engine for model in models} == {EngineKind.VLLM_SERVER}:
        _check_server_limits(limits)
    block_size = limits.block_size or _CPU_BLOCK_SIZE
    found = ((kind, lack) for kind in sorted(others) if (lack := lacking(limits, kind)) is not None)
    engine, (field, limit_feature) = next(found, (min(others), ("", None)))
    ruled_out = (
        ("--emulate", is_emulated, "emulation"),
        (_OPTIONS.get(field, ""), bool(field), limit_feature),
        ("--quantization", any(m.spec.quantization and m.engine in others for m in models), Feature.INT8),
    )
    for option, is_set, feature in ruled_out:
        if is_set:
            raise InvalidArgumentError(
                f"{option}: a model runs on {engine}, which lacks {feature}.",
                hint="Leave it out, or serve every model with --engine headway.",
                field=option.partition(" ")[0].rstrip(","),
            )
    is_latent = any(model.spec.latent_dim for model in models)
    step = _CPU_LATENT_BLOCK_SIZE if is_latent else _CPU_BLOCK_SIZE
    if EngineKind.VLLM in others and device == "cpu" and block_size % step:
        raise InvalidArgumentError(
            f"--block-size {block_size}: vllm takes multiples of {step} on the CPU.",
            hint=f"Give --block-size {step}.",
            field="--block-size",
        )


def _check_server_limits(limits: EngineLimits) -> None:
    """InvalidArgumentError where a limit is set that the servers decide."""
    decided = {
        "--block-size": limits.block_size,
        "--kv-cache-memory": limits.kv_cache_bytes,
        "--no-prefix-cache": limits.enable_prefix_cache,
    }
    for option, value in decided.items():
        if value is not None:
            raise InvalidArgumentError(
                f"{option} is decided by the servers, which run already.", hint="Leave it out.", field=option
            )


def read_servers(
    urls: Sequence[str], models: Sequence[ModelDeployment], *, events: Sequence[str] = ()
) -> tuple[EngineServer, ...]:
    """Reads `URL` and `NAME=URL`: the servers of models on vllm-server, each of which must be there and have its model.

    Args:
        events: `ENDPOINT`, or `URL=ENDPOINT`: where they publish the events of their caches.

    Raises:
        InvalidArgumentError: a URL is for no such model, such a model has none, or an endpoint is for no such server.
        FailedPreconditionError: a server does not answer, or is not what it has to be.
    """
    served = {model.name: model for model in models if model.engine is EngineKind.VLLM_SERVER}
    servers = []
    for text in urls:
        name, url = _split_url(text)
        if not name and len(served) == 1:
            (name,) = served
        if name not in served:
            raise InvalidArgumentError(
                f"--engine-url {text} is for no model on {EngineKind.VLLM_SERVER}.",
                hint=f"Write NAME=URL, and give that model --engine NAME={EngineKind.VLLM_SERVER}.",
                field="--engine-url",
            )
        servers.append(EngineServer(model=name, url=url.rstrip("/")))
    for name in served.keys() - {server.model for server in servers}:
        raise InvalidArgumentError(
            f"'{name}' is to run on {EngineKind.VLLM_SERVER}, and there is no server of it.",
            hint=f"Give --engine-url {name}=http://HOST:PORT.",
            field="--engine-url",
        )
    if len({server.url for server in servers}) < len(servers):
        raise InvalidArgumentError("--engine-url: a server is named twice.", field="--engine-url")
    servers = _with_events(servers, events)
    for server in servers:
        _check_server(server, served[server.model])
    return tuple(servers)


def _with_events(servers: Sequence[EngineServer], events: Sequence[str]) -> list[EngineServer]:
    """The servers with where they publish events. InvalidArgumentError where an endpoint is wrong, or nobody's."""
    by_url = {server.url: server for server in servers}
    for text in events:
        url, _, endpoint = text.rpartition("=")
        if not url and len(by_url) == 1:
            (url,) = by_url
        if url.rstrip("/") not in by_url:
            raise InvalidArgumentError(
                f"--engine-events {text} is for no server.",
                hint="Write URL=tcp://HOST:PORT, with a URL of --engine-url.",
                field="--engine-events",
            )
        if not re.fullmatch(r"tcp://[^\s/*]+:\d{1,5}", endpoint):
            raise InvalidArgumentError(
                f"--engine-events '{endpoint}' is no address of a publisher.",
                hint="Write tcp://HOST:PORT, as the endpoint in the server's --kv-events-config.",
                field="--engine-events",
            )
        by_url[url.rstrip("/")] = replace(by_url[url.rstrip("/")], events=endpoint)
    return list(by_url.values())


def _check_server(server: EngineServer, model: ModelDeployment) -> None:
    """Asks as a worker does, in a process that may import what workers do."""
    told = (server.url, server.model, model.directory, *filter(None, [server.events]))
    command = [sys.executable, "-m", "headway.worker.vllm_server", *told]
    asked = subprocess.run(command, capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=False)
    if asked.returncode == 0:
        return
    message, _, hint = asked.stderr.strip().partition("\n")
    raise FailedPreconditionError(message, hint=hint, field="--engine-url")


def find_vllm() -> str:
    """The interpreter that has vLLM.

    Raises:
        FailedPreconditionError: there is none, or it has none, or another version of it.
    """
    python = Path(os.environ.get(VLLM_PYTHON) or _BUILT).expanduser()
    if not python.exists():
        raise FailedPreconditionError(
            f"--engine vllm: vLLM is not installed: there is no {python}.",
            hint=f"Run `make vllm`, or name an interpreter that has vLLM and Headway in {VLLM_PYTHON}.",
            field="--engine",
        )
    asked = subprocess.run(
        [str(python), "-c", _VERSION], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=False
    )
    if asked.returncode:
        words = (asked.stderr.strip() or "it ends without a word").splitlines()[-1]
        raise FailedPreconditionError(
            f"--engine vllm: {python} cannot run it: {words.rpartition('Error: ')[2]}",
            hint="" if "make vllm" in words else f"Run `make vllm`, or name another interpreter in {VLLM_PYTHON}.",
            field="--engine",
        )
    return str(python)


def _kind(text: str) -> EngineKind:
    if text not in tuple(EngineKind):
        raise InvalidArgumentError(
            f"--engine {text} is unknown.", hint=f"There are {', '.join(EngineKind)}.", field="--engine"
        )
    return EngineKind(text)


def _split(text: str, option: str) -> tuple[str, str]:
    name, equals, rest = text.rpartition("=")
    if equals and not name.strip():
        raise InvalidArgumentError(f"{option} {text} has no name before the '='.", field=option)
    return name, rest


def _split_url(text: str) -> tuple[str, str]:
    """A URL may have an '=' of its own, behind its '://'."""
    name, equals, rest = text.partition("=")
    return (name, rest) if equals and "://" not in name else ("", text)


def _split_args(text: str) -> tuple[str, str]:
    """A name never begins with '-', and arguments do."""
    name, equals, rest = text.partition("=")
    return ("", text) if not equals or text.lstrip().startswith("-") else (name, rest)
