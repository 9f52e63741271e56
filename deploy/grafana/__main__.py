"""`python -m deploy.grafana`: writes the dashboards that Grafana reads."""

import json
from pathlib import Path

from deploy.grafana.dashboards import DASHBOARDS

DIRECTORY = Path(__file__).parent / "json"


def main() -> None:
    DIRECTORY.mkdir(exist_ok=True)
    for dashboard in DASHBOARDS:
        path = DIRECTORY / f"{dashboard.uid}.json"
        path.write_text(json.dumps(dashboard.document(), indent=1) + "\n")
        print(path)


if __name__ == "__main__":
    main()
