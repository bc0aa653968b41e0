"""Following a rule in use: evidence that may be looked at at any time, drift, audits, alarms."""

from demur.watch.monitor import Watch
from demur.watch.state import locked
from demur.watch.status import Alarm, Status, Watched

__all__ = ["Alarm", "Status", "Watch", "Watched", "locked"]


def __dir__() -> list[str]:
    return __all__
