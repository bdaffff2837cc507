"""Benchmarks: a page that measures any model (bench.html), and a headless run of it (python3 build.py bench)."""
