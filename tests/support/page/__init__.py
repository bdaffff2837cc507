"""Python that runs in an engine page, in Pyodide. Tests call it by name: tests/support/browser.py, call_python."""
