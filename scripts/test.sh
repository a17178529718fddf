#!/usr/bin/env bash
# Set up, then run the tests of a day's work; with --all those of CI, with its examples; with
# --nightly every test, with the products of all faults.
# Further arguments go to pytest: bash scripts/test.sh tests/test_ranks.py -k cuhk03
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

tier=()
if [[ "${1:-}" == --all ]]; then
    tier=(-m "not nightly" --hypothesis-profile ci)
    shift
elif [[ "${1:-}" == --nightly ]]; then
    tier=(-m "" --hypothesis-profile nightly)
    shift
fi
unset PYTHONDONTWRITEBYTECODE  # hundreds of tests start processes, each of which would compile all
make_environment test,demo
cd "$ROOT"
exec "$VENV/bin/python" -m pytest -n auto --dist worksteal ${tier[@]+"${tier[@]}"} "$@"
