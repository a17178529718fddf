#!/usr/bin/env bash
# Set up, then build the documentation into site/, or into the folder that is named; a warning is an
# error. Nothing is loaded from elsewhere: bash scripts/docs.sh [FOLDER]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

site="${1:-$ROOT/site}"
[[ "$site" == /* ]] || site="$PWD/$site"
make_environment docs
cd "$ROOT"
NO_MKDOCS_2_WARNING=1 "$VENV/bin/python" -m mkdocs build --strict --quiet --site-dir "$site"
printf 'Built %s\n' "$site/index.html"
