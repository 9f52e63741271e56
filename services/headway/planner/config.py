"""Settings of the planner process."""

import os
from pathlib import Path

from pydantic import Field

from headway.rpc.catalogue_config import CatalogueConfig


class PlannerConfig(CatalogueConfig):
    """Adds how searches are run and where they are kept."""

    searches_at_once: int = Field(default=1, ge=1, le=64)
    """Searches that run at once, each in a process of its own; the others wait for their turn."""
    max_processes: int = Field(default_factory=lambda: max(4, os.cpu_count() or 1), ge=1, le=4096)
    """Processes of this machine that one search may have at most."""
    ray: str = ""
    """Ray cluster on whose machines placements and training plans are searched: HOST:PORT, ray://HOST:PORT or auto. It
    runs what it is sent, and so do those who answer in its name: no caller can choose it."""
    searches_dir: Path | None = None
    """Directory to keep searches in, instead of Redis: of a planner that lives no longer than one command."""
    end_with_input: bool = False
    """End when standard input does: with the command that started this process, however that ended."""
