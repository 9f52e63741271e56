"""What the controller's account may do in the release's namespace, and no other account of the chart.

A change here is a change of what a stolen token may do.
"""

CONTROLLERS_RIGHTS = {
    ("serving.headway.dev", "modeldeployments", "list"),
    ("serving.headway.dev", "modeldeployments", "watch"),
    ("serving.headway.dev", "modeldeployments/status", "patch"),
    ("", "events", "create"),
}
