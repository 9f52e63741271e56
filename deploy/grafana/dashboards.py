"""The Grafana dashboards; each answers a question that an operator has."""

from deploy.grafana.panel import Dashboard, Panel, Query, Row

_MODELS = {"model": "label_values(headway:request_success_total, model_name)"}
_OF_MODEL = 'model_name=~"$model"'
_GOOD_FROM_TOP = ((None, "red"), (0.95, "orange"), (0.99, "green"))


def _quantile(share: float, metric: str, by: str = "model_name") -> str:
    return f"histogram_quantile({share}, sum by (le, {by}) (rate({metric}_bucket{{{_OF_MODEL}}}[$__rate_interval])))"


def _rate(metric: str, by: str, *, labels: str = _OF_MODEL) -> str:
    return f"sum by ({by}) (rate({metric}{{{labels}}}[$__rate_interval]))"


def _predicted_and_measured(title: str, description: str, *, predicted: str, measured: str) -> Panel:
    return Panel(
        title=title,
        description=description,
        unit="s",
        queries=tuple(
            Query(expr=_quantile(share, metric), legend=f"{{{{model_name}}}} p{round(share * 100)} {word}")
            for metric, word in ((measured, "measured"), (predicted, "predicted"))
            for share in (0.5, 0.99)
        ),
    )


SLOS = Dashboard(
    uid="headway-slos",
    title="Headway SLOs",
    variables=_MODELS,
    rows=(
        Row(
            title="Are the objectives kept?",
            panels=(
                Panel(
                    title="Attainment",
                    description="Met over all requests with an SLO, refused ones included, in five minutes.",
                    unit="percentunit",
                    maximum=1,
                    is_stat=True,
                    thresholds=_GOOD_FROM_TOP,
                    queries=(
                        Query(
                            expr=f"model:headway_slo_attainment:ratio_rate5m{{{_OF_MODEL}}}", legend="{{model_name}}"
                        ),
                    ),
                ),
                Panel(
                    title="Attainment, measured and predicted",
                    description="Where the lines part, the router's latency model is wrong: profile the model again.",
                    unit="percentunit",
                    maximum=1,
                    queries=(
                        Query(
                            expr=f"model:headway_slo_attainment:ratio_rate5m{{{_OF_MODEL}}}",
                            legend="{{model_name}} measured",
                        ),
                        Query(
                            expr=f"model:headway_slo_predicted:ratio_rate5m{{{_OF_MODEL}}}",
                            legend="{{model_name}} predicted",
                        ),
                    ),
                ),
                Panel(
                    title="Requests with an SLO, by outcome",
                    description="Refused: they could only have been late. Missed: they were promised, and late.",
                    unit="reqps",
                    queries=(
                        Query(
                            expr=_rate("headway:slo_requests_total", "model_name, outcome"),
                            legend="{{model_name}} {{outcome}}",
                        ),
                    ),
                ),
            ),
        ),
        Row(
            title="How long do clients wait?",
            panels=(
                _predicted_and_measured(
                    "Time to first token",
                    "Predicted from the moment that the request has a place.",
                    predicted="headway:predicted_time_to_first_token_seconds",
                    measured="headway:time_to_first_token_seconds",
                ),
                _predicted_and_measured(
                    "Time per output token",
                    "Mean over a request's tokens after the first.",
                    predicted="headway:predicted_time_per_output_token_seconds",
                    measured="headway:request_time_per_output_token_seconds",
                ),
                Panel(
                    title="Whole requests",
                    description="Arrival to last token.",
                    unit="s",
                    queries=(
                        Query(expr=_quantile(0.5, "headway:e2e_request_latency_seconds"), legend="{{model_name}} p50"),
                        Query(expr=_quantile(0.99, "headway:e2e_request_latency_seconds"), legend="{{model_name}} p99"),
                    ),
                ),
            ),
        ),
        Row(
            title="Why not?",
            panels=(
                Panel(
                    title="Waiting, prefill and decode",
                    description="At the worker: arrival to first step, to first token, to last token.",
                    unit="s",
                    queries=tuple(
                        Query(
                            expr=_quantile(share, f"headway:request_{phase}_time_seconds"),
                            legend=f"{{{{model_name}}}} {phase} p{round(share * 100)}",
                        )
                        for phase in ("queue", "prefill", "decode")
                        for share in (0.5, 0.99)
                    ),
                ),
                Panel(
                    title="Requests without a place",
                    description="They wait at the router, since every group is full.",
                    queries=(
                        Query(
                            expr=f"sum by (model_name) (headway:route_queued_requests{{{_OF_MODEL}}})",
                            legend="{{model_name}}",
                        ),
                    ),
                ),
                Panel(
                    title="Models that sleep",
                    description="1 while a model is unloaded, because nobody asks for it.",
                    queries=(
                        Query(
                            expr=f"max by (model_name) (headway:model_asleep{{{_OF_MODEL}}})",
                            legend="{{model_name}}",
                        ),
                    ),
                ),
                Panel(
                    title="Waiting and running sequences",
                    description="Waiting ones have a place in a group and none in its batch.",
                    queries=(
                        Query(
                            expr=f"sum by (model_name) (headway:num_requests_waiting{{{_OF_MODEL}}})",
                            legend="{{model_name}} waiting",
                        ),
                        Query(
                            expr=f"sum by (model_name) (headway:num_requests_running{{{_OF_MODEL}}})",
                            legend="{{model_name}} running",
                        ),
                    ),
                ),
                Panel(
                    title="Failures",
                    description="By error code; RESOURCE_EXHAUSTED are refusals.",
                    unit="reqps",
                    queries=(
                        Query(
                            expr=_rate("headway:request_failure_total", "model_name, code"),
                            legend="{{model_name}} {{code}}",
                        ),
                    ),
                ),
                Panel(
                    title="HTTP answers",
                    description="By path and status, what was refused before it reached a model included.",
                    unit="reqps",
                    queries=(
                        Query(
                            expr=_rate(
                                "headway:http_requests_total", "handler, status", labels='handler=~"/v1/.*|none"'
                            ),
                            legend="{{handler}} {{status}}",
                        ),
                    ),
                ),
            ),
        ),
    ),
)

ENGINES = Dashboard(
    uid="headway-engines",
    title="Headway engines",
    variables=_MODELS,
    rows=(
        Row(
            title="Throughput",
            panels=(
                Panel(
                    title="Tokens",
                    description="Computed by prefills, and generated.",
                    unit="short",
                    queries=(
                        Query(
                            expr=_rate("headway:prompt_tokens_total", "model_name"), legend="{{model_name}} prompt/s"
                        ),
                        Query(
                            expr=_rate("headway:generation_tokens_total", "model_name"),
                            legend="{{model_name}} generated/s",
                        ),
                    ),
                ),
                Panel(
                    title="Step time",
                    description="Of the engine, with what it takes outside the network.",
                    unit="s",
                    queries=(
                        Query(expr=_quantile(0.5, "headway:engine_step_seconds"), legend="{{model_name}} p50"),
                        Query(expr=_quantile(0.99, "headway:engine_step_seconds"), legend="{{model_name}} p99"),
                    ),
                ),
                Panel(
                    title="Engines",
                    description="What computes each model, at each worker that has it loaded.",
                    is_stat=True,
                    queries=(
                        Query(
                            expr=f"headway:engine_info{{{_OF_MODEL}}}",
                            legend="{{model_name}} {{process}}: {{engine}}",
                        ),
                    ),
                ),
                Panel(
                    title="Token budget used",
                    description="By the latest step of each worker; at 1 prompts wait for the next step.",
                    unit="percentunit",
                    maximum=1,
                    queries=(
                        Query(
                            expr=f"headway:engine_step_budget_usage_perc{{{_OF_MODEL}}}",
                            legend="{{model_name}} {{process}}",
                        ),
                    ),
                ),
            ),
        ),
        Row(
            title="KV cache",
            panels=(
                Panel(
                    title="Blocks in use",
                    description="Near 1 sequences give way to others.",
                    unit="percentunit",
                    maximum=1,
                    queries=(
                        Query(expr=f"headway:kv_cache_usage_perc{{{_OF_MODEL}}}", legend="{{model_name}} {{process}}"),
                    ),
                ),
                Panel(
                    title="Blocks and their size",
                    description="Of each loaded model: blocks on the device and on the host, and the tokens in one.",
                    is_stat=True,
                    queries=(
                        Query(
                            expr=f"headway:cache_config_info{{{_OF_MODEL}}}",
                            legend="{{model_name}}: {{num_gpu_blocks}} + {{num_cpu_blocks}} of {{block_size}}",
                        ),
                    ),
                ),
                Panel(
                    title="Prefix hits",
                    description="Share of prompt tokens that were found in the cache.",
                    unit="percentunit",
                    maximum=1,
                    queries=(
                        Query(
                            expr=(
                                f"{_rate('headway:prefix_cache_hits_total', 'model_name')}"
                                f" / ({_rate('headway:prefix_cache_queries_total', 'model_name')} > 0)"
                            ),
                            legend="{{model_name}}",
                        ),
                    ),
                ),
                Panel(
                    title="Preemptions",
                    description="Sequence groups that gave way, by recomputation or swapping.",
                    unit="ops",
                    queries=(
                        Query(
                            expr=_rate("headway:num_preemptions_total", "model_name, kind"),
                            legend="{{model_name}} {{kind}}",
                        ),
                    ),
                ),
            ),
        ),
        Row(
            title="Between workers",
            panels=(
                Panel(
                    title="Collectives",
                    description="What ranks of a group send each other.",
                    unit="Bps",
                    queries=(
                        Query(
                            expr=_rate("headway:collective_bytes_total", "model_name, axis"),
                            legend="{{model_name}} {{axis}}",
                        ),
                    ),
                ),
                Panel(
                    title="Moved KV blocks",
                    description="Migrations, remote prefixes, prompts on a worker of their own.",
                    unit="Bps",
                    queries=(
                        Query(
                            expr=_rate("headway:kv_transfer_bytes_total", "model_name, direction"),
                            legend="{{model_name}} {{direction}}",
                        ),
                    ),
                ),
                Panel(
                    title="Streams that went on elsewhere",
                    description="Resumed: their worker died. Migrated: they were asked to.",
                    unit="ops",
                    queries=(
                        Query(
                            expr=_rate("headway:streams_resumed_total", "model_name"), legend="{{model_name}} resumed"
                        ),
                        Query(
                            expr=_rate("headway:streams_migrated_total", "model_name"), legend="{{model_name}} migrated"
                        ),
                    ),
                ),
            ),
        ),
        Row(
            title="Control plane",
            panels=(
                Panel(
                    title="Routing",
                    description="Time to decide; the aim is below a millisecond.",
                    unit="s",
                    queries=(
                        Query(
                            expr="histogram_quantile(0.99, sum by (le)"
                            " (rate(headway:route_decision_seconds_bucket[$__rate_interval])))",
                            legend="p99",
                        ),
                    ),
                ),
                Panel(
                    title="Leases by group",
                    description="Requests that the router has placed and that have not ended.",
                    queries=(
                        Query(expr="sum by (group_id) (headway:route_in_flight_requests)", legend="{{group_id}}"),
                    ),
                ),
                Panel(
                    title="Processes",
                    description="Ready ones by kind, and restarts.",
                    queries=(
                        Query(expr="max by (kind) (headway:processes_ready)", legend="{{kind}}"),
                        Query(
                            expr="sum by (name) (increase(headway:process_restarts_total[10m]))",
                            legend="{{name}} restarts in 10 min",
                        ),
                    ),
                ),
            ),
        ),
    ),
)

_OF_RUN = 'run=~"$run"'


def _of_run(title: str, description: str, lines: dict[str, str], *, unit: str = "short") -> Panel:
    """Args:
    lines: what each is called, by its metric.
    """
    queries = tuple(
        Query(expr=f"headway:{metric}{{{_OF_RUN}}}", legend=f"{{{{run}}}} {name}") for metric, name in lines.items()
    )
    return Panel(title=title, description=description, unit=unit, queries=queries)


TRAINING = Dashboard(
    uid="headway-training",
    title="Headway training",
    variables={"run": "label_values(headway:train_step, run)"},
    rows=(
        Row(
            title="Does it learn?",
            panels=(
                _of_run(
                    "Loss",
                    "Where the lines part, it learns its data by heart.",
                    {"train_loss": "of a step", "train_validation_loss": "validated"},
                ),
                _of_run(
                    "Gradient norm",
                    "Before clipping; one that grows ahead of the loss is a rate that is too high.",
                    {"train_gradient_norm": ""},
                ),
                _of_run("Step", "A line that goes back: the run began again.", {"train_step": ""}),
            ),
        ),
        Row(
            title="Is it as fast as planned?",
            panels=(
                _of_run(
                    "Iteration, measured and predicted",
                    "Where the lines part, something else uses the machine, or the parts take other times by now.",
                    {"train_step_seconds": "measured", "train_predicted_step_seconds": "predicted"},
                    unit="s",
                ),
                _of_run(
                    "Bubble, measured and predicted",
                    "The share of the workers' time without a part to run. More micro-batches make it smaller.",
                    {"train_bubble_ratio": "measured", "train_predicted_bubble_ratio": "predicted"},
                    unit="percentunit",
                ),
                _of_run(
                    "MFU",
                    "Of the FLOP/s that the catalogue says all workers can reach.",
                    {"train_mfu_ratio": ""},
                    unit="percentunit",
                ),
            ),
        ),
        Row(
            title="Throughput and faults",
            panels=(
                Panel(
                    title="Examples and tokens a second",
                    description="Validation and checkpoints count too.",
                    queries=tuple(
                        Query(
                            expr=_rate(f"headway:train_{what}_total", "run", labels=_OF_RUN),
                            legend=f"{{{{run}}}} {what}",
                        )
                        for what in ("examples", "tokens")
                    ),
                ),
                Panel(
                    title="Checkpoints and restarts",
                    description="In an hour.",
                    queries=tuple(
                        Query(
                            expr=f"increase(headway:train_{what}_total{{{_OF_RUN}}}[1h])", legend=f"{{{{run}}}} {what}"
                        )
                        for what in ("checkpoints", "restarts")
                    ),
                ),
            ),
        ),
    ),
)

DASHBOARDS = (SLOS, ENGINES, TRAINING)
