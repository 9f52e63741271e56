"""Models as pipelines for inference: which operators make which stage, what stages take, and what they hold."""
