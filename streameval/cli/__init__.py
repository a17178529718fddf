"""The command line: commands whose values make a request and a session.

app         the group of commands; errors and warnings in words, exit statuses
options     the options that several commands have, each declared once
types       types of options: read, shown, completed; in config files, too
config      options from a file, ``--config``
inputs      sources, labels, protocols and groups that the options name
results     the folder of a result, and finished work beside it
printing    stdout, JSON, tables, and files in their place
help        exit statuses and examples of ``--help``
signals     Ctrl-C and SIGTERM
trec        the options ``--trec-run`` and ``--trec-qrels``

A file for each further command; ``conventions`` is with ``show``, ``ledger plot`` with ``plot``.

Nothing heavy is imported here: ``streameval --help`` answers at once.
"""

from streameval.cli.app import main

__all__ = ["main"]
