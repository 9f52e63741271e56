"""The models of the papers, exact to their tables, as plain torch modules. See `headway.profiler.zoo.registry.find`."""
