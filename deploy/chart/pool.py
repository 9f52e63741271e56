"""The values of a pool of workers."""

from deploy.chart.pod import NAME, image, placing
from deploy.chart.shape import choice, fields, listing, text, whole
from headway.core.engine_kind import EngineKind

POOL = fields(
    "A pool of cells that are alike. A cell is a pod with a worker for each of its GPUs, or for several of them.",
    "name",
    "cells",
    of={
        "name": text("The pool's name.", pattern=NAME),
        "cells": whole("Pods of the pool."),
        "gpusPerCell": whole("GPUs of each pod; 0 for workers on the CPU.", most=64),
        "gpusPerWorker": whole(
            "GPUs of each worker, over which vllm splits each layer; 1 where it is left out. Those of a pod are a "
            "multiple of it.",
            least=1,
            most=64,
        ),
        "workersPerCell": whole("Workers of each pod where it has no GPUs.", least=1, most=64),
        "gpuResource": text("The resource that stands for a GPU.", least=1),
        "resourceClaims": listing(
            "Claims of dynamic resource allocation for each pod, instead of gpuResource.",
            fields(
                "A claim.",
                "name",
                "resourceClaimTemplateName",
                of={
                    "name": text("Its name in the pod.", pattern=NAME),
                    "resourceClaimTemplateName": text("The template that the claim is made of."),
                },
            ),
        ),
        "emulate": text("A device of the catalogue whose time workers take, computing nothing: V100-16."),
        "engine": choice("What its workers compute with; Headway's own where it is left out.", *map(str, EngineKind)),
        "engineUrl": text("The vLLM server that its one cell stands in for, with vllm-server.", pattern="^https?://"),
        "engineModel": text("The name of the model that the server serves.", least=1),
        "engineEvents": text(
            "Where it publishes the events of its cache, tcp://HOST:PORT.", pattern="^tcp://.+:[0-9]+$"
        ),
        "engineKeySecret": text("A Secret whose key api-key has the server's API key.", least=1),
        "image": image("its pods, where it is not image.worker: one that has vllm"),
        "threadsPerWorker": whole("Compute threads of each worker on the CPU; 0 shares the cores."),
        "memoryBytesPerWorker": whole(
            "What each worker may use; 0 takes all of its GPU, or a share of the pod's memory."
        ),
        "sharedMemory": text("Size of /dev/shm, through which the ranks of a group talk."),
        "drainSeconds": whole("How long running requests may take to move to other cells or end, before the pod ends."),
        "runtimeClassName": text("The runtime of its pods, such as nvidia."),
        "priorityClassName": text("The priority of its pods."),
        **placing(),
    },
)
