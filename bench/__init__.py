"""Benchmarks, for example `python -m bench.quality`. Each prints a table and writes a JSON file."""
