#!/usr/bin/env bash
# Set up, then run the tests of a day's work, or with --all every test, with the examples of CI.
# Further arguments go to pytest: bash scripts/test.sh tests/test_ranks.py -k cuhk03
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

tier=()
if [[ "${1:-}" == --all ]]; then
    tier=(-m "not nightly" --hypothesis-profile ci)
    shift
fi
make_environment test,demo
cd "$ROOT"
exec "$VENV/bin/python" -m pytest -n auto --dist worksteal ${tier[@]+"${tier[@]}"} "$@"
