"""What the controller's account may do in the release's namespace, and no other account of the chart.

A change here is a change of what a stolen token may do.
"""

RIGHTS_ON_MODELS = {
    ("serving.headway.dev", "modeldeployments", "list"),
    ("serving.headway.dev", "modeldeployments", "watch"),
    ("serving.headway.dev", "modeldeployments/status", "patch"),
    ("", "events", "create"),
}
RIGHTS_ON_POOLS = {
    ("serving.headway.dev", "workerpools", "list"),
    ("serving.headway.dev", "workerpools", "watch"),
    ("serving.headway.dev", "workerpools/status", "patch"),
    *(("", "pods", verb) for verb in ("list", "watch", "create", "patch", "delete")),
    *(("policy", "poddisruptionbudgets", verb) for verb in ("create", "patch")),
}
"""Besides, where pools of workers are resources too."""
RIGHTS_ON_JOBS = {("batch", "jobs", verb) for verb in ("list", "watch", "create", "patch")}
"""Besides, where models are fetched. What is applied, a call of `patch`, is made where there is none."""
