"""The values of a model to serve."""

from deploy.chart.pod import NAME
from deploy.chart.shape import choice, fields, listing, number, text, whole
from headway.core.answer_parser import ReasoningParser, ToolParser
from headway.core.engine_kind import EngineKind

MODEL = fields(
    "A model to serve.",
    "name",
    "path",
    of={
        "name": text("The name that clients ask for.", least=1),
        "path": text("The checkpoint's directory in the pods, below modelStorage.mountPath.", pattern="^/"),
        "dtype": choice(
            "What it runs in; the checkpoint's own where it is left out.", "float32", "bfloat16", "float16"
        ),
        "quantization": choice("What its matrices are rounded to when they are loaded.", "int8"),
        "maxModelLen": whole("Its longest sequence in tokens.", least=1),
        "backend": choice(
            "What runs an encoder's layers; eager where it is left out.", "fastest", "eager", "onnxruntime", "openvino"
        ),
        "generationConfig": text("A directory with the generation_config.json that counts, or none to do without."),
        "slo": fields(
            "The objectives of its requests; a request may set its own.",
            of={
                "ttftMs": number("Milliseconds to the first token.", above=0),
                "tpotMs": number("Milliseconds for each token after it.", above=0),
                "e2eMs": number("Milliseconds to the end of the answer.", above=0),
            },
        ),
        "engine": choice("What computes it; Headway's own engine where it is left out.", *map(str, EngineKind)),
        "engineArgs": text("Flags for vllm as they are; not those that Headway decides."),
        "toolParser": choice(
            "How its tool calls are read; as its chat template shows where left out.", *map(str, ToolParser)
        ),
        "reasoningParser": choice(
            "How its reasoning is read; as its chat template shows where left out.", *map(str, ReasoningParser)
        ),
        "replicas": fields(
            "How many groups of workers serve it; as many as there are where nothing is said.",
            of={
                "min": whole("At least; one where it is left out. With 0 it is unloaded while nobody asks for it."),
                "max": whole("At most.", least=1),
                "idleSeconds": number("With min: 0, for how long nobody has asked for it then; 900.", above=0),
            },
        ),
        "parallelism": fields(
            "How the workers of each of its groups share it; the planner's choice where it is left out. Models that "
            "differ in it share no worker.",
            of={
                "tp": whole("Workers that share each layer; one where it is left out.", least=1),
                "pp": whole("Stages of layers, one behind the other; one where it is left out.", least=1),
                "cp": whole("Workers that share the KV cache of each sequence; one where it is left out.", least=1),
            },
        ),
        "pools": listing("Pools whose workers may serve it; all where it is left out.", text("A pool.", pattern=NAME)),
        "roles": fields(
            "Has its prompts computed by other workers than those that go on with them.",
            "prefill",
            "decode",
            of={
                "prefill": whole("Workers that compute prompts.", least=1),
                "decode": whole("Workers that go on with what those began.", least=1),
            },
        ),
    },
)
