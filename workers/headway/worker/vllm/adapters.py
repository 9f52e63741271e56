"""The LoRA adapters that vLLM has loaded: as many as it has room for, the latest used."""

import asyncio
from collections import OrderedDict

from vllm.lora.request import LoRARequest
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError

from headway.core.adapter import Adapter
from headway.core.errors import FailedPreconditionError, InvalidArgumentError


class Adapters:
    """Loads adapters when requests name them. vLLM drops the one that was not used for longest where it has no room."""

    def __init__(self, llm: AsyncLLM) -> None:
        self._llm = llm
        config = llm.vllm_config.lora_config
        self._capacity = 0 if config is None else config.max_cpu_loras or config.max_loras
        self._loaded: OrderedDict[str, LoRARequest] = OrderedDict()
        self._last_id = 0
        self._loading = asyncio.Lock()

    @property
    def keys(self) -> tuple[str, ...]:
        """Of the adapters that are loaded."""
        return tuple(self._loaded)

    async def use(self, adapter: Adapter | None) -> LoRARequest | None:
        """What a request with the adapter hands to vLLM, once it is loaded; None for none.

        Raises:
            FailedPreconditionError: the model was started without room for adapters.
            InvalidArgumentError: vLLM cannot load it, in its own words.
        """
        if adapter is None:
            return None
        if not self._capacity:
            raise FailedPreconditionError(
                "The model was started without room for adapters.",
                hint="Start it with --engine-args '--enable-lora'.",
                field="adapter",
            )
        async with self._loading:  # one at a time, as vLLM does
            if adapter.key not in self._loaded:
                self._loaded[adapter.key] = await self._load(adapter)
                while len(self._loaded) > self._capacity:
                    self._loaded.popitem(last=False)
            self._loaded.move_to_end(adapter.key)
            return self._loaded[adapter.key]

    async def _load(self, adapter: Adapter) -> LoRARequest:
        self._last_id += 1
        request = LoRARequest(lora_name=adapter.key, lora_int_id=self._last_id, lora_path=adapter.directory)
        try:
            await self._llm.add_lora(request)
        except EngineDeadError:
            raise
        except Exception as error:
            words = str(error).partition(": ")[2] or str(error)
            raise InvalidArgumentError(
                f"vLLM cannot load the adapter '{adapter.name}': {words.rstrip('.')}.",
                hint="Unload it: headway lora unload.",
                field="adapter",
            ) from error
        return request
