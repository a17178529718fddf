"""What tests use of `streameval.cli` beside its public names."""

from streameval.cli import main as main
from streameval.cli.app import MEANINGS as MEANINGS
from streameval.cli.app import SHELLS as SHELLS
from streameval.cli.app import VARIABLE as VARIABLE
from streameval.cli.app import ExitStatus as ExitStatus
from streameval.cli.app import choose_blas_kernels as choose_blas_kernels
from streameval.cli.config import CONFIG as CONFIG
from streameval.cli.config import accepts as accepts
from streameval.cli.config import as_toml as as_toml
from streameval.cli.config import in_force as in_force
from streameval.cli.config import options_by_key as options_by_key
from streameval.cli.config import read_config as read_config
from streameval.cli.evaluate import evaluate as evaluate
from streameval.cli.options import commands_of as commands_of
from streameval.cli.types import Metrics as Metrics
from streameval.cli.types import Range as Range
from streameval.cli.types import Value as Value
from streameval.interruption import SIGNALS as SIGNALS
from streameval.interruption import Interruption as Interruption
from streameval.interruption import at_end as at_end
from streameval.interruption import held as held
