"""Where processes run: on this machine, for now. A launcher is one module that implements `launcher.Launcher`."""
