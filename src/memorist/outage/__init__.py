"""When the store is away: noticing it, taking in what is told, answering with what is left, and handing over later."""

from .guard import Guarded
from .outage import Outage

__all__ = ["Guarded", "Outage"]
