"""The commands by name. A command's module is imported when it runs, so that `headway --help` is quick."""

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

COMMANDS = {
    "up": "Start a stack on this machine and serve models.",
    "down": "Stop a stack.",
    "status": "Show services, workers, load, SLO attainment and the plan.",
    "chat": "Talk to a model.",
    "generate": "Complete a prompt.",
    "embed": "Turn texts into vectors.",
    "logs": "Show the logs of a stack, merged by time.",
    "plan": "Plan serving and training; show or explain the plan in use; follow searches.",
    "train": "Train a model by a plan; list, show, stop and resume runs.",
    "apply": "Make a placement so on a running stack.",
    "replan": "Plan again from recorded traffic, now or every hour.",
    "traffic": "Export the requests that arrived.",
    "kv": "Show what the KV cache is used for.",
    "prefix": "Keep prefixes resident in the KV cache.",
    "lora": "Serve LoRA adapters as models, on vllm.",
    "key": "Make, list and revoke API keys of a running stack.",
    "fetch": "Fetch a model's files from Hugging Face, a bucket or a registry.",
    "profile": "Measure hardware and models, and show what was measured.",
    "version": "Show versions.",
}


class _Deferred(TyperCommand):
    """Stands for a command in listings; `load` brings the real one."""

    def load(self) -> Any:
        return get_command(import_module(f"headway.cli.{self.name}").app)


class _DeferredGroup(TyperGroup):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, summary in COMMANDS.items():
            self.add_command(_Deferred(name, help=summary, callback=None))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, _Deferred) else command, rest


app = typer.Typer(cls=_DeferredGroup, no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def headway() -> None:
    """Serve large models from one command: plan, route, run, observe."""
