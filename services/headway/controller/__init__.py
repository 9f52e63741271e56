"""The controller: makes processes match the deployment, and workers the plan."""
