"""What the profiler predicts, against what is measured."""
