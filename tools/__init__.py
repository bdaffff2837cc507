"""What `build.py` is made of; the standard library alone, so that it runs on a bare machine."""
