"""What tests use of `streameval.cli` beside its public names."""

from streameval.cli import main as main
from streameval.cli.completion import SHELLS as SHELLS
from streameval.cli.completion import VARIABLE as VARIABLE
from streameval.cli.config import CONFIG as CONFIG
from streameval.cli.config import as_toml as as_toml
from streameval.cli.config import in_force as in_force
from streameval.cli.config import options_by_key as options_by_key
from streameval.cli.config import read_config as read_config
from streameval.cli.evaluate import evaluate as evaluate
from streameval.cli.help import MEANINGS as MEANINGS
from streameval.cli.help import ExitStatus as ExitStatus
from streameval.cli.help import commands_of as commands_of
from streameval.cli.signals import SIGNALS as SIGNALS
from streameval.cli.signals import Interruption as Interruption
from streameval.cli.types import Metrics as Metrics
from streameval.cli.types import Range as Range
from streameval.cli.types import Value as Value
from streameval.cli.types import accepts as accepts

__all__ = [
    "CONFIG",
    "MEANINGS",
    "SHELLS",
    "SIGNALS",
    "VARIABLE",
    "ExitStatus",
    "Interruption",
    "Metrics",
    "Range",
    "Value",
    "accepts",
    "as_toml",
    "commands_of",
    "evaluate",
    "in_force",
    "main",
    "options_by_key",
    "read_config",
]
