#!/usr/bin/env bash
# Set up, then run the whole test suite; arguments go to pytest: bash scripts/test.sh -m "not slow"
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

make_environment test,demo
cd "$ROOT"
exec "$VENV/bin/python" -m pytest "$@"
