"""The profiler: measures models on workers, fits their step latency and keeps what it learnt."""
