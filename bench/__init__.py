"""Benchmarks: a page that measures any model (bench.html), the same without a screen (python3 build.py bench)."""
