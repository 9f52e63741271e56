"""What `headway up` prints once the stack serves."""

import json

from rich.console import Console

from headway.cli.plan_view import plan_view
from headway.client.stack import Stack
from headway.core.plan import ServingPlan
from headway.core.units import format_duration


def welcome(console: Console, stack: Stack, plan: ServingPlan, *, took_s: float, stop_with: str) -> None:
    """Addresses, models, the plan and a first request to try."""
    names = [model.name for model in plan.models]
    console.print(f"[bold green]Headway is ready[/] after {format_duration(took_s)}.", highlight=False)
    console.print(f"  OpenAI API  {stack.http_url}/v1", highlight=False)
    console.print(f"  gRPC        {stack.grpc_endpoint}", highlight=False)
    console.print(f"  models      {', '.join(names)}", highlight=False, markup=False)
    console.print(plan_view(plan))
    console.print("Try it:")
    console.print(_curl(stack, model=names[0]), highlight=False, markup=False, soft_wrap=True)
    console.print(f"{stop_with} stops it.", highlight=False)


def _curl(stack: Stack, *, model: str) -> str:
    body = json.dumps({"model": model, "prompt": "Once upon a time", "max_tokens": 32})
    key = " -H 'Authorization: Bearer YOUR_KEY'" if stack.api_key else ""
    return f"  curl {stack.http_url}/v1/completions{key} -H 'Content-Type: application/json' -d '{body}'"
