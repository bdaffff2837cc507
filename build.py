#!/usr/bin/env python3
"""Wisp's one command. It sets up everything a fresh machine lacks; Python 3.11 and Node are all it assumes.

python3 build.py serve [--port N] [--api]         build the page and serve it on this machine
python3 build.py build                            make dist/, a folder that any static host can serve
python3 build.py test [pytest arguments]          run every test
python3 build.py bench [--peer] [--json FILE]     measure; --help lists what else it takes
python3 build.py chat "PROMPT"                    ask the page's model from the terminal
"""

import sys

if sys.version_info < (3, 11):
    sys.exit("Wisp's build needs Python 3.11 or later; this is " + sys.version.split()[0])

from tools.commands import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
