#!/usr/bin/env bash
# Set up, then check style, types and the direction of imports.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

make_environment test,demo
cd "$ROOT"
"$VENV/bin/ruff" check .
"$VENV/bin/ruff" format --check .
"$VENV/bin/mypy"
"$VENV/bin/lint-imports"
