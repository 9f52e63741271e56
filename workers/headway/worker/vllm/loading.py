"""Loading a model that vLLM computes: its engine process is started, which loads the weights."""

import os
import shlex
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

from headway.checkpoint.model_directory import read_checkpoint
from headway.core.cluster import Hardware
from headway.core.engine_args import check_engine_args
from headway.core.engine_kind import EngineKind
from headway.core.errors import FailedPreconditionError, HeadwayError
from headway.core.line import QueuePolicy
from headway.core.load_order import LoadOrder
from headway.core.parallel_config import ParallelConfig
from headway.observe.tracing import Tracing
from headway.worker.load_call import LoadCall
from headway.worker.loaded import Start
from headway.worker.loaded_model import LoadedModel
from headway.worker.owner import Owner
from headway.worker.vllm.echo import Echo
from headway.worker.vllm.environment import WORKER_VARIABLE, vllm_environment, vllm_version


class VllmLoader:
    """Loads models into vLLM; implements `Loader`."""

    def __init__(self, hardware: Hardware, *, queue_policy: QueuePolicy) -> None:
        self._hardware = hardware
        self._queue_policy = queue_policy

    def prepare(self, order: LoadOrder, *, call: LoadCall) -> Start:
        """Starts vLLM's engine process, and returns when it has loaded the model; see `Loader.prepare`.

        Raises:
            FailedPreconditionError: vLLM cannot load it, in its own words; or the order is for another engine.
        """
        own = ParallelConfig(tp=self._hardware.num_devices)
        if order.engine is not EngineKind.VLLM or order.parallel != own or len(order.worker_ids) > 1:
            raise FailedPreconditionError(
                f"The worker computes on vLLM, alone, with {own.flags}; '{order.model}' is to run on {order.engine}, "
                f"with {order.parallel.flags}.",
                hint="Make a plan for the workers that are there.",
            )
        check_engine_args(order.engine_args)
        version = vllm_version()
        spec = read_checkpoint(
            Path(order.directory),
            dtype=order.dtype or None,
            generation_config=order.generation_config,
            engine=order.engine,
        ).spec
        is_eager = "--enforce-eager" in shlex.split(order.engine_args)
        os.environ.update(vllm_environment(num_threads=self._hardware.num_threads, is_eager=is_eager))
        os.environ[WORKER_VARIABLE] = str(os.getpid())
        directory = Path(tempfile.mkdtemp(prefix="headway-vllm-"))
        call.tell(0.0, f"starting vLLM {version}")
        echo = Echo()
        try:
            with ExitStack() as undo, echo.listening():
                from headway.worker.vllm.starting import start_vllm

                undo.callback(shutil.rmtree, directory, ignore_errors=True)
                start = start_vllm(order, spec, directory=directory, queue_policy=self._queue_policy)
                undo.pop_all()
        except HeadwayError:
            raise
        except (RuntimeError, ValueError, OSError, ImportError, AssertionError, NotImplementedError) as error:
            words = echo.cause() or str(error)
            raise FailedPreconditionError(
                f"vLLM cannot load '{order.model}': {words.rstrip('.')}.",
                hint="The worker's log says more. Correct the model's options and apply again.",
                field="engine",
            ) from error

        def start_model(owner: Owner, tracing: Tracing) -> LoadedModel:
            engine = start(version=version, weight_bytes=spec.weight_bytes)
            return LoadedModel(order, engine=engine, owner=owner, tracing=tracing)

        return start_model
