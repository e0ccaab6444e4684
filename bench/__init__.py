"""Measurements: `python -m bench.quality` and `python -m bench.speed`. They print a table and write JSON."""
