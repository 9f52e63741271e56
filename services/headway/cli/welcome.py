"""Prints what a user needs once the stack serves: its plan, a first request, and how to stop it."""

import json

from rich.console import Console

from headway.cli.plan_view import plan_view
from headway.client.stack import Stack
from headway.core.model import Task
from headway.core.plan.serving import ModelDeployment, ServingPlan
from headway.core.units import format_duration

_REQUESTS: dict[Task, tuple[str, dict[str, object]]] = {
    Task.GENERATE: ("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 32}),
    Task.EMBED: ("/v1/embeddings", {"input": "Once upon a time"}),
    Task.CLASSIFY: ("/v1/classify", {"input": "Once upon a time"}),
}


def welcome(console: Console, stack: Stack, plan: ServingPlan, *, took_s: float, stop_with: str) -> None:
    """Addresses, models, the plan and a first request to try."""
    names = [model.name for model in plan.models]
    console.print(f"[bold green]Headway is ready[/] after {format_duration(took_s)}.", highlight=False)
    if plan.is_emulated:
        console.print(f"[bold yellow]Emulated:[/] {plan.emulated_devices}. Answers are made up.", highlight=False)
    console.print(f"  OpenAI API  {stack.http_url}/v1", highlight=False)
    console.print(f"  gRPC        {stack.grpc_endpoint}", highlight=False)
    console.print(f"  models      {', '.join(names)}", highlight=False, markup=False)
    console.print(plan_view(plan))
    console.print("Try it:")
    console.print(_curl(stack, plan.models[0]), highlight=False, markup=False, soft_wrap=True)
    console.print(f"{stop_with} stops it.", highlight=False)


def _curl(stack: Stack, model: ModelDeployment) -> str:
    path, request = _REQUESTS[model.spec.task]
    body = json.dumps({"model": model.name, **request})
    key = " -H 'Authorization: Bearer YOUR_KEY'" if stack.api_key else ""
    return f"  curl {stack.http_url}{path}{key} -H 'Content-Type: application/json' -d '{body}'"
