"""The command line: parses, calls `evaluation`, hands the result to `report`.

app       the group of commands; errors and warnings in words, exit statuses
evaluate  the command ``streameval evaluate``
running   what it does
ledger    the commands ``streameval ledger``
config    options from a file, ``--config``
listing   the commands ``streameval metrics`` and ``streameval conventions``
examples  the examples at the end of --help
declared  the options that several commands have
options   what the options' texts stand for
values    what kinds of texts they are: numbers, lists, places
printing  stdout, and files in its place
recording finished work beside --out, and what goes on with it
show      the command ``streameval show``
compare   the command ``streameval compare``
plot      the commands ``streameval plot`` and ``streameval ledger plot``
completion  the command ``streameval completion``
statuses  what an exit status means
trec      the options ``--trec-run`` and ``--trec-qrels``
signals   Ctrl-C and SIGTERM

Nothing heavy is imported here: ``streameval --help`` answers at once.
"""

from streameval.cli.app import main

__all__ = ["main"]
