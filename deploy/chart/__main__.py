"""`python -m deploy.chart`: writes what is generated of the Helm chart."""

import json
from pathlib import Path

import yaml

from deploy.chart.reference import values_reference
from deploy.chart.resources import model_deployments, worker_pools
from deploy.chart.values import VALUES, schema

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "headway"


def generated() -> dict[Path, str]:
    """Every generated file and what it should hold."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    definitions = {"modeldeployments": model_deployments(), "workerpools": worker_pools()}
    return {
        CHART / "definitions" / f"{name}.yaml": yaml.safe_dump(definition, sort_keys=False, width=120)
        for name, definition in definitions.items()
    } | {
        CHART / "values.schema.json": json.dumps(schema(), indent=1) + "\n",
        ROOT / "docs" / "kubernetes-values.md": values_reference(VALUES, defaults),
    }


if __name__ == "__main__":
    for path, text in generated().items():
        path.write_text(text)
        print(path.relative_to(ROOT))
