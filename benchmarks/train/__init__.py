"""What running training plans costs beside their work, how well it is predicted, and beside torch's pipelines."""
