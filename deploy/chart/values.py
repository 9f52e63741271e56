"""The schema of the chart's values. `python -m deploy.chart` writes it, and the reference in the documentation."""

from typing import Any

from deploy.chart.kubernetes import DEFINITIONS
from deploy.chart.model import MODEL
from deploy.chart.pod import image, placing
from deploy.chart.pool import POOL
from deploy.chart.shape import Schema, choice, fields, flag, listing, named, number, reference, text, whole

_LIMITS = fields(
    "Limits of every engine; what is left out is the planner's choice.",
    of={
        "blockSize": whole("Tokens of a KV block.", least=1),
        "maxNumSeqs": whole("Sequences in one batch, at most.", least=1),
        "maxNumBatchedTokens": whole("Tokens computed in one step, at most.", least=1),
        "maxNumPrefillTokens": whole("Prompt tokens computed in one step, at most.", least=1),
        "kvCacheBytes": whole("Memory of each worker for the KV cache.", least=1),
        "hostCacheBytes": whole("Host memory of each worker for preempted sequences and evicted prefixes."),
        "enablePrefixCache": flag("Whether prompts with the same beginning are computed once."),
        "preemption": choice("How sequences give way.", "auto", "recompute", "swap"),
        "numDraftTokens": whole("Tokens guessed and checked in one step."),
        "tp": whole("Workers that share each layer.", least=1),
        "pp": whole("Stages of layers, one behind the other.", least=1),
        "cp": whole("Workers that share the KV cache of each sequence.", least=1),
        "cpFfn": choice("What the workers of cp share outside attention.", "data", "tensor"),
        "stageLayers": listing("Layers of each stage.", whole("Layers.", least=1)),
        "prefillWorkers": whole("Workers that compute prompts only.", least=1),
        "decodeWorkers": whole("Workers that go on with what those began.", least=1),
    },
)

_GATEWAY = fields(
    "The gateway answers clients.",
    of={
        "replicas": whole("Pods, where autoscaling is off.", least=1),
        "service": fields(
            "Where clients come.",
            of={
                "type": choice("Its type.", "ClusterIP", "NodePort", "LoadBalancer"),
                "port": whole("The HTTP port.", least=1, most=65535),
                "grpcPort": whole("The gRPC port.", least=1, most=65535),
                "annotations": named("Its annotations.", text("A value.")),
            },
        ),
        "apiKeys": listing("Keys that clients must send one of; none lets everybody in.", text("A key.", least=1)),
        "adminKeys": listing("Keys of operators, for metrics and the cluster's state.", text("A key.", least=1)),
        "existingKeysSecret": text(
            "Your Secret instead of both: api-keys and admin-keys are JSON lists, api-key one key, for `helm test`."
        ),
        "tenantsSecret": text("A Secret whose key tenants.yaml has tenants, their keys and objectives."),
        "strictFields": flag("Whether requests with fields that have no effect are refused."),
        "maxConcurrency": whole("Requests that one pod answers at once; more are refused.", least=1),
        "maxBodyBytes": whole("Larger requests are refused.", least=1),
        "drainSeconds": whole("How long running answers may take to end when a pod ends."),
        "leaveSeconds": whole(
            "How long a pod that ends takes requests on, so that proxies and idle clients let go.", least=1
        ),
        "resumeTimeoutSeconds": whole("How long an answer whose worker ended waits for another.", least=1),
        "autoscaling": fields(
            "More pods when they are busy.",
            of={
                "enabled": flag("Whether a HorizontalPodAutoscaler is made."),
                "minReplicas": whole("Pods at least.", least=1),
                "maxReplicas": whole("Pods at most.", least=1),
                "targetCpuPercent": whole("How much of their CPU requests pods should use.", least=1, most=100),
            },
        ),
        "ingress": fields(
            "An Ingress to the HTTP port.",
            of={
                "enabled": flag("Whether it is made."),
                "className": text("Its class."),
                "annotations": named("Its annotations.", text("A value.")),
                "hosts": listing("Its host names.", text("A name.", least=1)),
                "tls": listing(
                    "Its certificates.",
                    fields(
                        "A certificate.",
                        "secretName",
                        "hosts",
                        of={"secretName": text("Its Secret."), "hosts": listing("Its names.", text("A name."))},
                    ),
                ),
            },
        ),
        "httpRoute": fields(
            "An HTTPRoute of the Gateway API to the HTTP port.",
            of={
                "enabled": flag("Whether it is made."),
                "parentRefs": listing(
                    "The Gateways that it belongs to.",
                    fields(
                        "A Gateway.",
                        "name",
                        of={
                            "name": text("Its name."),
                            "namespace": text("Its namespace."),
                            "sectionName": text("One of its listeners."),
                        },
                    ),
                ),
                "hostnames": listing("Its host names.", text("A name.")),
            },
        ),
        **placing(),
    },
)

_REDIS = fields(
    "Where leases, plans, profiles and counters are kept.",
    of={
        "bundled": fields(
            "One that this release runs, with an append-only file.",
            of={
                "enabled": flag("Whether it is run; else redis.external says where one is."),
                "storage": fields(
                    "Its volume.",
                    of={
                        "size": text("Its size.", least=1),
                        "storageClass": text("Its class; the cluster's default where it is empty."),
                        "keep": flag("Whether `helm uninstall` leaves it."),
                    },
                ),
                **placing(),
            },
        ),
        "external": fields(
            "One of yours.",
            of={
                "url": text(
                    "redis://, rediss:// (TLS), or redis+sentinel://HOST:PORT,HOST:PORT/SERVICE, without a password.",
                    pattern=r"^((redis|rediss|redis\+sentinel|rediss\+sentinel)://[^@]+)?$",
                ),
                "existingSecret": text("A Secret with the whole URL, password included, instead of url."),
                "key": text("The key in it.", least=1),
                "port": whole("Its port, which network policies let pods out to.", least=1, most=65535),
                "caSecret": text("A Secret whose key ca.crt has the authority of its certificate."),
            },
        ),
    },
)

_MONITORING = fields(
    "What Prometheus and Grafana get. The first two need the Prometheus operator.",
    of={
        "podMonitor": fields(
            "Scrapes every process.",
            of={
                "enabled": flag("Whether it is made."),
                "interval": text("How often.", pattern="^[0-9]+(ms|s|m)$"),
                "labels": named("Labels that Prometheus selects it by.", text("A value.")),
            },
        ),
        "rules": fields(
            "Records attainment, and alerts.",
            of={
                "enabled": flag("Whether a PrometheusRule is made."),
                "docsUrl": text(
                    "Where these pages are to be read, up to the last slash: alerts link to what to do in operate.md.",
                    pattern="/$",
                ),
                "labels": named("Labels that Prometheus selects it by.", text("A value.")),
            },
        ),
        "dashboards": fields(
            "ConfigMaps that Grafana's sidecar reads.",
            of={
                "enabled": flag("Whether they are made."),
                "labels": named("Labels that the sidecar selects them by.", text("A value.")),
                "datasourceUid": text("The uid of Grafana's Prometheus data source.", least=1),
            },
        ),
    },
)


def _service(description: str, **more: Schema) -> Schema:
    return fields(description, of={**more, **placing()})


VALUES: dict[str, Schema] = {
    "models": listing("The models to serve.", MODEL),
    "modelDeployments": fields(
        "Models that are declared as resources of the release's namespace, instead of in models.",
        of={
            "enabled": flag("Whether they are served; the controller then has rights on them."),
            "installDefinition": flag("Whether the definition of ModelDeployment is part of the release."),
        },
    ),
    "workerPools": fields(
        "Pools as resources of the release's namespace; the controller makes their cells. Needs modelDeployments.",
        of={
            "enabled": flag("Whether they are there instead of workers; the controller then has rights on pods."),
            "emulated": flag("Whether they emulate devices; the models need no weights then."),
            "installDefinition": flag("Whether the definition of WorkerPool is part of the release."),
        },
    ),
    "modelStorage": fields(
        "The volume that every gateway, worker and controller has the models in, read-only.",
        of={
            "mountPath": text("Where it is mounted.", pattern="^/."),
            "existingClaim": text("A PersistentVolumeClaim of this namespace."),
            "hostPath": text("Or a directory of every node."),
            "volume": reference("volume", "Or another source of a volume."),
            "fetch": fields(
                "Jobs that bring models there which resources declare by hf://, s3:// or oci://.",
                of={
                    "enabled": flag("Whether there are any; the controller then has rights on jobs."),
                    "credentialsSecret": text(
                        "A Secret whose keys become variables of theirs: HF_TOKEN, AWS_ACCESS_KEY_ID, ..."
                    ),
                    "registrySecret": text("A Secret of type kubernetes.io/dockerconfigjson, for oci://."),
                    "serviceAccountName": text("An account that a cloud gives rights to; else that of the services."),
                    "env": listing(
                        "Variables of theirs: HTTPS_PROXY, HF_ENDPOINT, ...", reference("env", "A variable.")
                    ),
                    "ports": listing(
                        "Where they may go to, with network policies.", whole("A port.", least=1, most=65535)
                    ),
                    **placing(),
                },
            ),
        },
    ),
    "workers": listing("The pools of workers; none where these are resources.", POOL),
    "limits": _LIMITS,
    "profile": flag("Whether models are measured once they serve; predictions stay estimates otherwise."),
    "queuePolicy": choice("Who is next of the requests that wait.", "least-slack", "fcfs", "priority"),
    "answerOverheadMs": number("What an answer takes to the client and back, besides the model.", least=0),
    "logLevel": choice("Of every process.", "debug", "info", "warning", "error"),
    "otlpEndpoint": text("An OpenTelemetry collector for traces, such as http://otel:4317; empty for none."),
    "image": fields(
        "Where the programs come from.",
        of={
            "services": image("all but workers with torch"),
            "worker": image("workers that compute"),
            "pullPolicy": choice("When images are pulled.", "Always", "IfNotPresent", "Never"),
            "pullSecrets": listing("Secrets to pull them with.", text("A Secret's name.")),
        },
    ),
    "auth": fields(
        "Secrets between the processes.",
        of={
            "existingSecret": text(
                "Your Secret with the keys auth-token and redis-password; else one is made, and kept over upgrades."
            )
        },
    ),
    "tls": fields(
        "TLS between the processes: both ends prove themselves.",
        of={
            "enabled": flag("Whether calls between pods, and gRPC of clients, are encrypted."),
            "existingSecret": text(
                "Your Secret with ca.crt, tls.crt and tls.key, made out to the DNS name headway; else cert-manager "
                "makes it. A change is taken up without a restart."
            ),
            "certManager": fields(
                "The certificate that cert-manager keeps.",
                of={
                    "issuer": fields(
                        "Who signs it; where it has no name, an authority of the release's own.",
                        of={
                            "name": text("Its name."),
                            "kind": text("Its kind, such as ClusterIssuer.", least=1),
                            "group": text("Its API group.", least=1),
                        },
                    ),
                    "duration": text("How long it is valid.", pattern="^[0-9]+(h|m|s)$"),
                    "renewBefore": text("How long before its end the next is made.", pattern="^[0-9]+(h|m|s)$"),
                },
            ),
        },
    ),
    "gateway": _GATEWAY,
    "router": _service(
        "The router chooses a worker for each request.",
        replicas=whole("Pods; the newest decides, another takes over when it ends.", least=1, most=3),
        policy=choice("How a group is chosen.", "balanced", "least-load", "round-robin"),
        absentTimeoutSeconds=number("How long a request waits for a model that no worker serves just now.", least=0),
        wakeTimeoutSeconds=number("How long it waits for a model that was unloaded and is loaded again.", least=0),
    ),
    "kvcache": _service("The KV-cache service knows who holds which prefix."),
    "planner": _service(
        "The planner decides who serves what.", searchesAtOnce=whole("Searches that run at once.", least=1, most=64)
    ),
    "profiler": _service("The profiler measures models."),
    "controller": _service(
        "The controller loads models as the plan says.",
        replicas=whole("Pods; one is at work, another takes over when it ends.", least=1, most=3),
    ),
    "redis": _REDIS,
    "networkPolicy": fields(
        "Pods are reached by those that need them, and by nobody else.",
        of={
            "enabled": flag("Whether policies are made."),
            "clients": listing(
                "Who may come to the gateway; everybody where it is empty.", reference("peer", "A peer.")
            ),
            "monitoring": listing(
                "Who may scrape metrics; every namespace where it is empty.", reference("peer", "A peer.")
            ),
            "apiServerPorts": listing(
                "Where the API server listens, behind its Service: the controller may go there.",
                whole("A port.", least=1, most=65535),
                least=1,
            ),
            "enginePorts": listing(
                "Ports of vLLM servers that a WorkerPool stands in for: cells may go there. Those of pools in these "
                "values are known.",
                whole("A port.", least=1, most=65535),
            ),
        },
    ),
    "monitoring": _MONITORING,
    "minReadySeconds": whole(
        "How long a new pod is ready before the next one that it replaces ends: network policies and proxies may take "
        "so long to know it."
    ),
    "podAnnotations": named("Annotations of every pod.", text("A value.")),
    "podLabels": named("Labels of every pod.", text("A value.")),
    "priorityClassName": text("The priority of all pods but workers."),
    "extraEnv": listing("Variables of every container.", reference("env", "A variable.")),
    "extraObjects": listing(
        "Whole objects that belong to the release, as text: names and values are filled in as in a template.",
        text("A YAML document.", least=1),
    ),
    "global": {
        "type": "object",
        "description": "What a chart that includes this one sets for all of its charts; nothing here is read.",
        "additionalProperties": False,
        "properties": {},
    },
}


def schema() -> dict[str, Any]:
    """The whole schema, as Helm reads it."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart headway",
        "type": "object",
        "additionalProperties": False,
        "required": ["workers"],
        "properties": VALUES,
        "definitions": DEFINITIONS,
    }
