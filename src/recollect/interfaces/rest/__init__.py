"""The engine over HTTP: `recollect serve`."""
