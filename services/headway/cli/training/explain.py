"""`headway plan explain` of a training plan: why it is so, and what speaks against the alternatives."""

import json

import typer
from rich.console import Console

from headway.cli.training.view import training_explanation
from headway.core.codec import to_document
from headway.core.plan.training import TrainingPlan


def explain_training(plan: TrainingPlan, *, as_json: bool) -> None:
    if as_json:
        document = {"reasons": plan.reasons, "alternatives": plan.alternatives, "schedule": plan.schedule}
        typer.echo(json.dumps(to_document(document), indent=2))
    else:
        Console().print(training_explanation(plan), highlight=False)
