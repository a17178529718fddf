"""The command line: commands whose values make a request and a session.

app        the group of commands; errors, exit statuses, completion, the list of metrics
evaluate   evaluate and compare-index
ledger     the growing gallery
saved      what reads saved results: show, conventions, compare, plot, report
data       audit and convert

options    all options, each declared once; examples of ``--help``
types      types of options: read, shown, completed; in config files, too
config     options from a file, ``--config``
inputs     sources, labels, protocols and groups that the options name
output     stdout, files, the folder of a result

Nothing heavy is imported here: ``streameval --help`` answers at once.
"""

from streameval.cli.app import main

__all__ = ["main"]
