"""Models estimated for placing, and placements tried out.

What computes is imported when it is first asked for: that takes longer than all else that the planner starts with.
"""

import asyncio
import time
from collections.abc import Mapping

from headway.core.catalogue import Catalogue, built_in_catalogue
from headway.core.cluster import Hardware
from headway.core.graph import Graph
from headway.core.hardware.profile import LinkProfile
from headway.core.plan.placement import PlacementAlternative, PlacementPlan
from headway.core.plan.serving import ModelDeployment
from headway.core.stage_profile import StageProfile
from headway.store.documents import Documents


class PlacementService:
    """Makes what a search for a placement starts from, and weighs other placements than it found."""

    def __init__(self, link_profiles: Documents[LinkProfile], *, catalogue: Catalogue | None = None) -> None:
        self._link_profiles = link_profiles
        self._catalogue = catalogue or built_in_catalogue()

    async def estimate(
        self,
        graph: Graph,
        *,
        model: str,
        device: str,
        max_devices: int,
        dtype: str | None = None,
        is_live: bool = False,
    ) -> list[StageProfile]:
        """Estimates profiles of a captured model; see `estimate_stage_profiles`.

        Args:
            is_live: whether exchanges count as they were measured on such devices, where they were.

        Raises:
            UnavailableError: `is_live`, and the store is away.
        """
        from headway.planner.inter.estimate import estimate_stage_profiles
        from headway.planner.serving.device_roofline import links_on

        measured = await self._link_profiles.all() if is_live else []
        return await asyncio.to_thread(
            estimate_stage_profiles,
            graph,
            model=model,
            device=device,
            catalogue=self._catalogue,
            max_devices=max_devices,
            dtype=dtype,
            links=links_on(device, measured, self._catalogue),
            created_at_s=time.time(),
        )

    async def estimate_generation(
        self, model: ModelDeployment, hardware: Hardware, *, max_devices: int
    ) -> list[StageProfile]:
        """Estimates profiles of a language model; see `serving.generating.estimate_generation`."""
        from headway.planner.serving.generating import estimate_generation

        return await asyncio.to_thread(
            estimate_generation,
            model,
            hardware,
            catalogue=self._catalogue,
            max_devices=max_devices,
            created_at_s=time.time(),
        )

    async def try_instead(self, plan: PlacementPlan, text: str, files: Mapping[str, bytes]) -> PlacementAlternative:
        """Simulates another placement on a plan's requests; see `planning.plan.try_instead`."""
        from headway.planner.placement.planning.plan import try_instead

        return await asyncio.to_thread(try_instead, plan, text, files)
