"""The one place that loads onnxruntime: late, because it is slow to import, and mute, because it would report home."""

from __future__ import annotations

import os
from typing import Any


def load() -> Any:
    """The module. Its telemetry has to be switched off before the import; the name of the switch changed once."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("ORT_TELEMETRY_DISABLED", "1")
    import onnxruntime

    return onnxruntime
