"""The command line: parses, calls `evaluation`, hands the result to `report`.

app       the group of commands; errors and warnings in words, exit statuses
evaluate  the command ``streameval evaluate``
ledger    the commands ``streameval ledger``
listing   the commands ``streameval metrics`` and ``streameval conventions``
examples  the examples at the end of --help
options   what the options' texts stand for
printing  stdout, and files in its place
recording finished work beside --out, and what goes on with it
show      the command ``streameval show``
compare   the command ``streameval compare``
plot      the command ``streameval plot``
signals   Ctrl-C and SIGTERM

Nothing heavy is imported here: ``streameval --help`` answers at once.
"""

from streameval.cli.app import main

__all__ = ["main"]
