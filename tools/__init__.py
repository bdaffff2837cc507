"""The parts of build.py. They import only the standard library, except those that run in the virtual environment."""
