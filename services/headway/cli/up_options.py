"""The options of `headway up`."""

from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer

from headway.cli.bytesize import parse_bytes
from headway.cli.counts import parse_counts
from headway.cli.duration import parse_duration
from headway.core.answer_parser import ReasoningParser, ToolParser

_ENGINE = "Engine"
_PARALLEL = "Parallel"
_EMULATION = "Emulation"
_GATEWAY = "Gateway"
_STACK = "Stack"

Models: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--model",
        metavar="DIR|NAME=DIR",
        help="A checkpoint directory in Hugging Face format, or where to fetch one from: hf://, s3:// or oci://, as "
        "`headway fetch` does. Repeatable.",
    ),
]
Workers: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Worker processes. Default: --tp x --pp x --cp for each model, with vllm one; of fewer, models share lone "
        "ones.",
    ),
]
Emulate: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NxDEVICE[,...]",
        help="Take the time of so many devices of the catalogue, e.g. 16xV100 or 8xV100,4xA100-40, and compute "
        "nothing: answers are made up. --model needs no weights then, and may be profile:NAME.",
        rich_help_panel=_EMULATION,
    ),
]
StageProfiles: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Stage latencies of models for --emulate, in AlpaServe's form.",
        exists=True,
        dir_okay=False,
        resolve_path=True,
        rich_help_panel=_EMULATION,
    ),
]
Engines: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--engine",
        metavar="ENGINE|NAME=ENGINE",
        help="What computes the models, or the one of that name: vllm, vllm-server (a server that --engine-url names), "
        "or headway, the default. Repeatable.",
        rich_help_panel=_ENGINE,
    ),
]
EngineUrls: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--engine-url",
        metavar="URL|NAME=URL",
        help="A vLLM server that runs already, of the models on vllm-server, or the one of that name. Repeatable: each "
        "is a worker.",
        rich_help_panel=_ENGINE,
    ),
]
EngineEvents: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--engine-events",
        metavar="ENDPOINT|URL=ENDPOINT",
        help="Where a server of --engine-url publishes the events of its prefix cache (vLLM's --kv-events-config): "
        "tcp://HOST:PORT. Repeatable.",
        rich_help_panel=_ENGINE,
    ),
]
EngineArgs: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--engine-args",
        metavar="'ARGS'|NAME='ARGS'",
        help="Flags for vllm as they are, e.g. '--enforce-eager'; not those that Headway decides. Repeatable.",
        rich_help_panel=_ENGINE,
    ),
]
ToolParsers: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--tool-parser",
        metavar="PARSER|NAME=PARSER",
        help=f"How tool calls of the models, or the one of that name, are read: {', '.join(ToolParser)}. Default: as "
        "the chat template shows. Repeatable.",
        rich_help_panel=_GATEWAY,
    ),
]
ReasoningParsers: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--reasoning-parser",
        metavar="PARSER|NAME=PARSER",
        help=f"How reasoning is read: {', '.join(ReasoningParser)}. Default: as the chat template shows. Repeatable.",
        rich_help_panel=_GATEWAY,
    ),
]
UnloadIdle: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--unload-idle",
        metavar="DURATION|NAME=DURATION",
        help="Unload the models, or the one of that name, that nobody has asked for for so long (15m); the next "
        "request waits until it is loaded again. Repeatable. Default: all stay loaded.",
        rich_help_panel=_STACK,
    ),
]
Backends: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--backend",
        metavar="BACKEND|NAME=BACKEND",
        help="What runs the layers of encoders, or of the one of that name: onnxruntime, openvino, the fastest as "
        "measured while it is loaded, or eager, the default. Repeatable.",
        rich_help_panel=_ENGINE,
    ),
]
Threads: TypeAlias = Annotated[
    int, typer.Option(min=0, help="Compute threads of each worker, with vllm of each device; 0 shares the cores.")
]
NoBindCores: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--no-bind-cores",
        help="Let workers run on any core. Default: of several on the CPU each has cores of its own, if there are "
        "enough.",
    ),
]
Memory: TypeAlias = Annotated[
    int | None,
    typer.Option(
        parser=parse_bytes,
        metavar="SIZE",
        help="What each worker may use, with vllm each device, e.g. 2GiB. Default: a share.",
    ),
]
Device: TypeAlias = Annotated[Literal["cpu", "cuda"], typer.Option(help="What workers compute on.")]
Dtype: TypeAlias = Annotated[
    Literal["float32", "bfloat16"] | None,
    typer.Option(help="Of weights and KV cache. Default: the checkpoint's.", rich_help_panel=_ENGINE),
]
KvCacheMemory: TypeAlias = Annotated[
    int | None,
    typer.Option(
        parser=parse_bytes,
        metavar="SIZE",
        help="KV cache of each worker. Default: what the weights leave.",
        rich_help_panel=_ENGINE,
    ),
]
MaxModelLen: TypeAlias = Annotated[
    int | None,
    typer.Option(min=1, help="Longest sequence in tokens. Default: the model's.", rich_help_panel=_ENGINE),
]
MaxNumSeqs: TypeAlias = Annotated[
    int | None, typer.Option(min=1, help="Sequences in one batch, at most.", rich_help_panel=_ENGINE)
]
MaxNumBatchedTokens: TypeAlias = Annotated[
    int | None, typer.Option(min=1, help="Tokens computed in one step, at most.", rich_help_panel=_ENGINE)
]
BlockSize: TypeAlias = Annotated[int | None, typer.Option(min=1, help="Tokens in a KV block.", rich_help_panel=_ENGINE)]
MaxNumPrefillTokens: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Prompt tokens computed in one step, at most: lower keeps decodes steadier. Default: what decodes leave.",
        rich_help_panel=_ENGINE,
    ),
]
SwapSpace: TypeAlias = Annotated[
    int | None,
    typer.Option(
        parser=parse_bytes,
        metavar="SIZE",
        help="Host memory of each worker for preempted sequences and evicted prefixes. Default: none.",
        rich_help_panel=_ENGINE,
    ),
]
Preemption: TypeAlias = Annotated[
    Literal["auto", "recompute", "swap"] | None,
    typer.Option(help="How sequences give way. Default: auto, by measured cost.", rich_help_panel=_ENGINE),
]
SpeculativeTokens: TypeAlias = Annotated[
    int | None,
    typer.Option(min=0, help="Tokens guessed from the prompt and checked in one step.", rich_help_panel=_ENGINE),
]
Quantization: TypeAlias = Annotated[
    Literal["int8"] | None,
    typer.Option(help="Round weights when they are loaded. Default: keep them.", rich_help_panel=_ENGINE),
]
Tp: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Workers that share each layer of a model, with vllm devices of one worker (tensor parallel). Default: 1; "
        "without any axis the planner's choice.",
        rich_help_panel=_PARALLEL,
    ),
]
Pp: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Stages of layers, one behind the other (pipeline parallel). Default: as for --tp.",
        rich_help_panel=_PARALLEL,
    ),
]
Cp: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Workers that share the KV cache of each sequence (cache parallel). Default: as for --tp.",
        rich_help_panel=_PARALLEL,
    ),
]
StageLayers: TypeAlias = Annotated[
    Any,  # tuple[int, ...]; typer would take that for an option with several values
    typer.Option(
        parser=parse_counts,
        metavar="N,N,...",
        help="Layers of each stage, the first stage first. Default: as even as memory allows.",
        rich_help_panel=_PARALLEL,
    ),
]
CpFfn: TypeAlias = Annotated[
    Literal["data", "tensor"] | None,
    typer.Option(
        help="What the workers of --cp share outside attention: the tokens of a step (data) or the weights (tensor). "
        "Default: data.",
        rich_help_panel=_PARALLEL,
    ),
]
PrefillWorkers: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Workers that compute prompts only; sequences go on at those of --decode-workers. Default: all do both.",
        rich_help_panel=_PARALLEL,
    ),
]
DecodeWorkers: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=1, help="Workers that go on with what those of --prefill-workers began.", rich_help_panel=_PARALLEL
    ),
]
NoPrefixCache: TypeAlias = Annotated[
    bool, typer.Option("--no-prefix-cache", help="Compute every prompt anew.", rich_help_panel=_ENGINE)
]
GenerationConfig: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="auto|none|DIR",
        help="Where the sampling of requests that set none comes from: the checkpoint's generation_config.json, "
        "nowhere (none, or vllm), or that of a directory.",
        rich_help_panel=_ENGINE,
    ),
]
Host: TypeAlias = Annotated[str, typer.Option(help="Address to listen on.", rich_help_panel=_GATEWAY)]
Port: TypeAlias = Annotated[
    int,
    typer.Option(
        "--port", "--http-port", min=0, max=65535, help="HTTP port; 0 takes a free one.", rich_help_panel=_GATEWAY
    ),
]
GrpcPort: TypeAlias = Annotated[
    int, typer.Option(min=0, max=65535, help="gRPC port; 0 takes a free one.", rich_help_panel=_GATEWAY)
]
ApiKeys: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--api-key",
        help="A key that clients must send. Repeatable; or HEADWAY_API_KEYS, separated by commas.",
        rich_help_panel=_GATEWAY,
    ),
]
MaxBodyBytes: TypeAlias = Annotated[
    int | None,
    typer.Option(
        parser=parse_bytes,
        metavar="SIZE",
        help="Larger HTTP bodies are refused. Default: 8MiB.",
        rich_help_panel=_GATEWAY,
    ),
]
MaxConcurrency: TypeAlias = Annotated[
    int,
    typer.Option(min=1, help="Requests being answered at once; more are refused.", rich_help_panel=_GATEWAY),
]
Gateways: TypeAlias = Annotated[
    int,
    typer.Option(
        min=1,
        max=64,
        help="Gateways that share the address: where one dies, the others answer.",
        rich_help_panel=_GATEWAY,
    ),
]
SloTtftMs: TypeAlias = Annotated[
    float | None,
    typer.Option(min=0.1, help="Objective: milliseconds to the first token.", rich_help_panel=_GATEWAY),
]
SloTpotMs: TypeAlias = Annotated[
    float | None,
    typer.Option(min=0.1, help="Objective: milliseconds per token after it.", rich_help_panel=_GATEWAY),
]
SloMs: TypeAlias = Annotated[
    float | None,
    typer.Option(min=0.1, help="Objective: milliseconds to the end of the answer.", rich_help_panel=_GATEWAY),
]
Tenants: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="YAML: tenants, their API keys and the objectives of their requests.",
        exists=True,
        dir_okay=False,
        resolve_path=True,
        rich_help_panel=_GATEWAY,
    ),
]
StrictFields: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--strict-fields",
        help="Refuse requests with unknown fields, instead of naming them in the header x-headway-ignored.",
        rich_help_panel=_GATEWAY,
    ),
]
QueuePolicy: TypeAlias = Annotated[
    Literal["fcfs", "least-slack", "priority"],
    typer.Option(
        help="Who is next of the requests that wait: the one that could wait least before it misses its objective "
        "(30 s where it has none), the first that came, or the one with the lowest 'priority'.",
        rich_help_panel=_GATEWAY,
    ),
]
TrafficRetention: TypeAlias = Annotated[
    Any,
    typer.Option(
        parser=parse_duration,
        metavar="7d",
        help="How long the record of arrivals is kept, for `headway traffic` and `headway replan`. Default: 7d.",
        rich_help_panel=_GATEWAY,
    ),
]
AnswerOverhead: TypeAlias = Annotated[
    Any,
    typer.Option(
        parser=parse_duration,
        metavar="5ms",
        help="What an answer takes from the client to the group and back, besides the model; objectives are kept with "
        "so much to spare. It depends on the machine and its network. Default: nothing.",
        rich_help_panel=_GATEWAY,
    ),
]
NoProfile: TypeAlias = Annotated[
    bool,
    typer.Option("--no-profile", help="Don't measure models; predictions stay estimates.", rich_help_panel=_STACK),
]
LogLevel: TypeAlias = Annotated[
    Literal["debug", "info", "warning", "error"], typer.Option(help="Of every process.", rich_help_panel=_STACK)
]
OtlpEndpoint: TypeAlias = Annotated[
    str | None,
    typer.Option(help="OpenTelemetry collector, e.g. http://127.0.0.1:4317.", rich_help_panel=_STACK),
]
Tls: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--tls",
        help="Encrypt calls between processes, and have each prove itself, by certificates that are made in the state "
        "directory. Or name yours: HEADWAY_TLS_CA, HEADWAY_TLS_CERT, HEADWAY_TLS_KEY.",
        rich_help_panel=_STACK,
    ),
]
Detach: TypeAlias = Annotated[
    bool, typer.Option("--detach", "-d", help="Return once it serves; it runs on.", rich_help_panel=_STACK)
]
