"""The engine over HTTP: `memorist serve`."""
