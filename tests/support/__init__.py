"""Shared code of the tests: browsers, servers and pages to drive, references to compare with, and cases."""
