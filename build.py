#!/usr/bin/env python3
"""Start Wisp's one command, described in tools/commands.py, where this Python can run it."""

import sys

if sys.version_info < (3, 11):
    sys.exit("Wisp's build needs Python 3.11 or later; this is " + sys.version.split()[0])

from tools.commands import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
