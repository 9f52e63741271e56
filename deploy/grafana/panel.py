"""The parts of a dashboard: queries, panels and rows."""

from dataclasses import dataclass, field
from typing import Any

DATASOURCE = {"type": "prometheus", "uid": "headway"}
WIDTH, HEIGHT = 24, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A PromQL expression and what its lines are called."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A graph over time.

    Attributes:
        description: what a reader should make of it.
        unit: Grafana's name of it: 's', 'percentunit', 'reqps', 'bytes', ...
        is_stat: whether only the newest value is shown, as a number.
    """

    title: str
    description: str
    queries: tuple[Query, ...]
    unit: str = "short"
    minimum: float | None = 0
    maximum: float | None = None
    is_stat: bool = False
    thresholds: tuple[tuple[float | None, str], ...] = ()

    def document(self, number: int, *, x: int, y: int, width: int) -> dict[str, Any]:
        """The panel as Grafana's JSON."""
        defaults: dict[str, Any] = {"unit": self.unit, "custom": {"fillOpacity": 8, "showPoints": "never"}}
        if self.minimum is not None:
            defaults["min"] = self.minimum
        if self.maximum is not None:
            defaults["max"] = self.maximum
        if self.thresholds:
            steps = [{"value": value, "color": color} for value, color in self.thresholds]
            defaults["thresholds"] = {"mode": "absolute", "steps": steps}
        return {
            "id": number,
            "type": "stat" if self.is_stat else "timeseries",
            "title": self.title,
            "description": self.description,
            "datasource": DATASOURCE,
            "gridPos": {"x": x, "y": y, "w": width, "h": HEIGHT},
            "fieldConfig": {"defaults": defaults, "overrides": []},
            "options": {} if self.is_stat else {"legend": {"displayMode": "list", "placement": "bottom"}},
            "targets": [
                {
                    "refId": chr(ord("A") + index),
                    "datasource": DATASOURCE,
                    "expr": query.expr,
                    "legendFormat": query.legend,
                }
                for index, query in enumerate(self.queries)
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Panels side by side, under a heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """A dashboard of rows.

    Attributes:
        uid: names it in addresses.
        variables: name to the query for its values; each may be several, or all.
    """

    uid: str
    title: str
    rows: tuple[Row, ...]
    variables: dict[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The dashboard as Grafana's JSON."""
        panels: list[dict[str, Any]] = []
        y = 0
        for row in self.rows:
            heading = {"id": len(panels) + 1, "type": "row", "title": row.title, "collapsed": False, "panels": []}
            panels.append(heading | {"gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1}})
            width = WIDTH // len(row.panels)
            for index, panel in enumerate(row.panels):
                panels.append(panel.document(len(panels) + 1, x=index * width, y=y + 1, width=width))
            y += HEIGHT + 1
        return {
            "uid": self.uid,
            "title": self.title,
            "tags": ["headway"],
            "schemaVersion": 39,
            "editable": True,
            "refresh": "10s",
            "time": {"from": "now-1h", "to": "now"},
            "templating": {"list": [_variable(name, query) for name, query in self.variables.items()]},
            "panels": panels,
        }


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }
