"""Fuzzers: random hostile input for everything that reads input from outside. test_fuzz.py runs them all.

Each module has `case(rng)`, which makes an input, and `run(case)`, which gives it to the code and raises for any error
that is not a clean one. The modules of templates and JSON import nothing that Pyodide lacks: they run there, too.
"""
