"""When the store is away: noticing it, taking in what is told, answering with what is left, and handing over later."""

from .outage import Offline
from .proxy import Guarded

__all__ = ["Guarded", "Offline"]
