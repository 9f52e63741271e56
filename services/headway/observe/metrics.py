"""Every metric that Headway exports, in one list. Names are vLLM's where the meaning is the same, under `headway:`.

Dashboards are checked against this list; a process exports those that it touches.
"""

from prometheus_client import Counter, Gauge, Histogram

from headway.observe.batched_histogram import BatchedHistogram

_TTFT_BUCKETS = (
    0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
_TPOT_BUCKETS = (0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5)
_E2E_BUCKETS = (0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0)
_PHASE_BUCKETS = (
    0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0,
)  # fmt: skip
_STEP_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.5)
_RPC_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)
_TOKEN_BUCKETS = (1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)

# Gateway: what clients see.
REQUEST_SUCCESS = Counter(
    "headway:request_success", "Requests that ended, by reason.", ["model_name", "finished_reason"]
)
REQUEST_FAILURE = Counter(
    "headway:request_failure", "Requests that ended in an error, by code.", ["model_name", "code"]
)
TTFT_SECONDS = Histogram(
    "headway:time_to_first_token_seconds", "Arrival to first token.", ["model_name"], buckets=_TTFT_BUCKETS
)
ITL_SECONDS = BatchedHistogram(
    "headway:inter_token_latency_seconds",
    "Between a sequence's successive token messages.",
    ["model_name"],
    buckets=_TPOT_BUCKETS,
)
TPOT_SECONDS = Histogram(
    "headway:request_time_per_output_token_seconds",
    "Mean time per output token after the first.",
    ["model_name"],
    buckets=_TPOT_BUCKETS,
)
E2E_SECONDS = Histogram(
    "headway:e2e_request_latency_seconds", "Arrival to last token.", ["model_name"], buckets=_E2E_BUCKETS
)
REQUEST_PROMPT_TOKENS = Histogram(
    "headway:request_prompt_tokens", "Prompt length.", ["model_name"], buckets=_TOKEN_BUCKETS
)
REQUEST_GENERATION_TOKENS = Histogram(
    "headway:request_generation_tokens", "Output length.", ["model_name"], buckets=_TOKEN_BUCKETS
)
HTTP_REQUESTS = Counter(
    "headway:http_requests",
    "HTTP answers, by the path's pattern ('none' for none that there is), method and status.",
    ["handler", "method", "status"],
)
SLO_REQUESTS = Counter(
    "headway:slo_requests",
    "Requests with an SLO, by outcome: met, missed, rejected.",
    ["model_name", "outcome"],
)
TENANT_SLO_REQUESTS = Counter(
    "headway:tenant_slo_requests",
    "The same, of tenants that the gateway knows.",
    ["tenant", "model_name", "outcome"],
)
SLO_ATTAINMENT = Gauge("headway:slo_attainment_ratio", "Met over all requests with an SLO.", ["model_name"])
GATEWAY_IN_FLIGHT = Gauge("headway:gateway_in_flight_requests", "HTTP and gRPC requests being answered.")
STREAMS_RESUMED = Counter(
    "headway:streams_resumed", "Streams moved to another worker after theirs died.", ["model_name"]
)
STREAMS_MIGRATED = Counter("headway:streams_migrated", "Streams moved to another worker by request.", ["model_name"])
PREFILL_HANDOFFS = Counter(
    "headway:prefill_handoffs",
    "Streams that a prefill worker passed on to a decode worker.",
    ["model_name"],
)
MIGRATION_PAUSE_SECONDS = Histogram(
    "headway:migration_pause_seconds",
    "Last token of one worker to first token of the next.",
    ["model_name"],
    buckets=_TTFT_BUCKETS,
)

# Router.
ROUTE_DECISIONS = Counter("headway:route_decisions", "Routing decisions, by outcome.", ["model_name", "outcome"])
ROUTE_SECONDS = Histogram("headway:route_decision_seconds", "Time to decide, queueing excluded.", buckets=_RPC_BUCKETS)
ROUTE_IN_FLIGHT = Gauge(
    "headway:route_in_flight_requests", "Leases given out and not ended.", ["group_id", "model_name"]
)
ROUTE_QUEUED = Gauge("headway:route_queued_requests", "Requests waiting for a place in a group.", ["model_name"])
PREDICTED_TTFT_SECONDS = Histogram(
    "headway:predicted_time_to_first_token_seconds",
    "What the router predicted of requests that were answered.",
    ["model_name"],
    buckets=_TTFT_BUCKETS,
)
PREDICTED_TPOT_SECONDS = Histogram(
    "headway:predicted_time_per_output_token_seconds",
    "What the router predicted of requests that were answered.",
    ["model_name"],
    buckets=_TPOT_BUCKETS,
)
SLO_PREDICTED = Counter(
    "headway:slo_predicted_requests",
    "Requests with an SLO, by what the router predicted: met, missed (which it refused).",
    ["model_name", "outcome"],
)

# Worker: the engine.
EMULATED_DEVICE = Gauge("headway:emulated_device", "1 where a worker emulates a device, by its name.", ["device"])
NUM_REQUESTS_RUNNING = Gauge("headway:num_requests_running", "Sequences in the running batch.", ["model_name"])
NUM_REQUESTS_WAITING = Gauge("headway:num_requests_waiting", "Sequences waiting to be scheduled.", ["model_name"])
KV_CACHE_USAGE = Gauge("headway:kv_cache_usage_perc", "Share of KV blocks in use, 1 is all.", ["model_name"])
PROMPT_TOKENS = Counter("headway:prompt_tokens", "Prefill tokens computed.", ["model_name"])
GENERATION_TOKENS = Counter("headway:generation_tokens", "Tokens generated.", ["model_name"])
NUM_REQUESTS_SWAPPED = Gauge(
    "headway:num_requests_swapped", "Waiting sequences whose blocks lie in host memory.", ["model_name"]
)
CPU_CACHE_USAGE = Gauge(
    "headway:cpu_cache_usage_perc", "Share of host KV blocks that swapped sequences use, 1 is all.", ["model_name"]
)
NUM_PREEMPTIONS = Counter(
    "headway:num_preemptions", "Sequence groups preempted, by kind: recompute, swap.", ["model_name", "kind"]
)
PREFIX_CACHE_QUERIES = Counter(
    "headway:prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", ["model_name"]
)
PREFIX_CACHE_HITS = Counter("headway:prefix_cache_hits", "Prompt tokens found in the prefix cache.", ["model_name"])
SPEC_DRAFT_TOKENS = Counter(
    "headway:spec_decode_num_draft_tokens", "Tokens guessed ahead by speculative decoding.", ["model_name"]
)
SPEC_ACCEPTED_TOKENS = Counter(
    "headway:spec_decode_num_accepted_tokens", "Tokens guessed ahead and found right.", ["model_name"]
)
MOVED_BLOCKS = Counter(
    "headway:kv_moved_blocks", "KV blocks moved between the shards of the cache, to even them out.", ["model_name"]
)
REQUEST_QUEUE_SECONDS = Histogram(
    "headway:request_queue_time_seconds",
    "Arrival at the worker to a sequence's first step.",
    ["model_name"],
    buckets=_PHASE_BUCKETS,
)
REQUEST_PREFILL_SECONDS = Histogram(
    "headway:request_prefill_time_seconds",
    "A sequence's first step to its first token.",
    ["model_name"],
    buckets=_PHASE_BUCKETS,
)
REQUEST_DECODE_SECONDS = Histogram(
    "headway:request_decode_time_seconds",
    "A sequence's first token to its last.",
    ["model_name"],
    buckets=_PHASE_BUCKETS,
)
CACHE_CONFIG_INFO = Gauge(
    "headway:cache_config_info",
    "1 while a model is loaded, by what its KV cache is like; blocks on the device are num_gpu_blocks, of all shards.",
    ["model_name", "block_size", "cache_dtype", "enable_prefix_caching", "num_gpu_blocks", "num_cpu_blocks"],
)
ENGINE_INFO = Gauge(
    "headway:engine_info",
    "1 while a model is loaded, by what computes it; the version is empty for Headway's own engine.",
    ["model_name", "engine", "version"],
)
STEP_SECONDS = Histogram(
    "headway:engine_step_seconds", "Time of one engine step.", ["model_name"], buckets=_STEP_BUCKETS
)
STEP_TOKENS = Histogram(
    "headway:engine_step_tokens",
    "Tokens computed in one engine step.",
    ["model_name"],
    buckets=_TOKEN_BUCKETS,
)
STEP_TOKEN_BUDGET = Gauge("headway:engine_step_token_budget", "Tokens that one step may compute.", ["model_name"])
STEP_BUDGET_USAGE = Gauge(
    "headway:engine_step_budget_usage_perc", "Share of the budget that the latest step used, 1 is all.", ["model_name"]
)
# Each rank of a group tells its own.
COLLECTIVE_BYTES = Counter(
    "headway:collective_bytes",
    "Bytes sent to other ranks of the group.",
    ["model_name", "axis", "operation", "site"],
)
COLLECTIVE_CALLS = Counter(
    "headway:collective_calls",
    "Collective operations of the group's ranks.",
    ["model_name", "axis", "operation", "site"],
)
COLLECTIVE_SECONDS = Counter(
    "headway:collective_seconds", "Time in collectives, the wait for slower ranks included.", ["model_name", "axis"]
)

# Blocks go out of one worker and into another.
KV_TRANSFER_BYTES = Counter(
    "headway:kv_transfer_bytes", "KV bytes exchanged with other workers: in, out.", ["model_name", "direction"]
)
KV_TRANSFER_BLOCKS = Counter(
    "headway:kv_transfer_blocks", "KV blocks exchanged with other workers: in, out.", ["model_name", "direction"]
)
MIGRATIONS = Counter(
    "headway:migrations",
    "Sequences that another worker was to take over, by outcome: moved, recomputed (without blocks), failed.",
    ["model_name", "outcome"],
)
PREFIX_FETCHES = Counter(
    "headway:prefix_fetches",
    "Prompts of which another worker was to have more, by outcome: fetched, late, failed.",
    ["model_name", "outcome"],
)
PREFIX_FETCHED_TOKENS = Counter(
    "headway:prefix_fetched_tokens", "Prompt tokens fetched from other workers instead of computed.", ["model_name"]
)

# KV-cache service.
INDEX_BLOCKS = Gauge(
    "headway:prefix_index_blocks", "Blocks that the prefix index knows, per worker.", ["worker_id", "model_name"]
)
INDEX_SNAPSHOTS = Counter(
    "headway:prefix_index_snapshots", "Times a worker's view was rebuilt.", ["worker_id", "model_name"]
)
INDEX_DRIFT = Counter(
    "headway:prefix_index_drifted_blocks",
    "Blocks that snapshots proved the index wrong about.",
    ["worker_id", "model_name"],
)

# By the leader of the group, and the number of the shard.
SHARD_WEIGHT = Gauge(
    "headway:kv_shard_weight", "Share of every sequence's blocks that a shard is to have.", ["worker_id", "shard"]
)
SHARD_USED_BLOCKS = Gauge("headway:kv_shard_used_blocks", "Referenced blocks of a shard.", ["worker_id", "shard"])
SHARDING_DECISIONS = Counter(
    "headway:kv_sharding_decisions", "Times that a group's shards were given other weights.", ["worker_id"]
)

# Controller, planner, profiler.
PROCESS_RESTARTS = Counter("headway:process_restarts", "Processes that the controller restarted.", ["name"])
PROCESSES_READY = Gauge("headway:processes_ready", "Processes that are up, by kind.", ["kind"])
PLANS_MADE = Counter("headway:plans_made", "Plans made, by outcome.", ["outcome"])
MODEL_ASLEEP = Gauge(
    "headway:model_asleep", "Whether a model is unloaded because nobody asks for it: 1 or 0.", ["model_name"]
)
MODEL_WAKES = Counter(
    "headway:model_wakes", "Times that a sleeping model was asked for: planned, or refused.", ["model_name", "outcome"]
)
PROFILE_STEPS = Counter("headway:profile_steps", "Engine steps timed.", ["worker_id"])

# Every process.
RPC_SECONDS = Histogram("headway:rpc_seconds", "gRPC calls served.", ["method", "code"], buckets=_RPC_BUCKETS)

# Training runs.
_OF_RUN = ["run", "model"]
TRAIN_STEP = Gauge("headway:train_step", "The last step that was done.", _OF_RUN)
TRAIN_LOSS = Gauge("headway:train_loss", "The mean over a step's batch, before its update.", _OF_RUN)
TRAIN_VALIDATION_LOSS = Gauge("headway:train_validation_loss", "As last validated.", _OF_RUN)
TRAIN_GRAD_NORM = Gauge("headway:train_gradient_norm", "Before clipping.", _OF_RUN)
TRAIN_STEP_SECONDS = Gauge("headway:train_step_seconds", "The last step, less validation and checkpoints.", _OF_RUN)
TRAIN_PREDICTED_SECONDS = Gauge(
    "headway:train_predicted_step_seconds", "As simulated with what parts took before the first step.", _OF_RUN
)
TRAIN_MFU = Gauge("headway:train_mfu_ratio", "Of the FLOP/s that the catalogue says all workers can reach.", _OF_RUN)
TRAIN_BUBBLE = Gauge("headway:train_bubble_ratio", "Of the workers' time, without a part of the model to run.", _OF_RUN)
TRAIN_PREDICTED_BUBBLE = Gauge("headway:train_predicted_bubble_ratio", "The same, as simulated.", _OF_RUN)
TRAIN_EXAMPLES = Counter("headway:train_examples", "Examples that were learnt from.", _OF_RUN)
TRAIN_TOKENS = Counter("headway:train_tokens", "Tokens that were learnt from.", _OF_RUN)
TRAIN_CHECKPOINTS = Counter("headway:train_checkpoints", "Checkpoints that were written.", _OF_RUN)
TRAIN_RESTARTS = Counter("headway:train_restarts", "Times that ranks began again at the last checkpoint.", _OF_RUN)
