"""Processes that end with the one that started them."""

import os
import threading
import time

_LOOK_EVERY_S = 0.5


def end_with_parent() -> None:
    """Ends this process when its parent is gone. What a killed worker left running would slow down the next one's
    measurements.
    """
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY_S)
    os._exit(1)
