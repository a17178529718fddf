#!/usr/bin/env bash
# Set up, prepare real data (1,797 images of digits) in demo-data/, evaluate.
# Python 3.11 or newer with pip is all that is needed; see environment.sh for what can be chosen.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

make_environment demo
cd "$ROOT"
"$VENV/bin/python" scripts/prepare_digits.py demo-data
"$VENV/bin/streameval" evaluate \
    --query demo-data/query.zarr --gallery demo-data/gallery.zarr --metric cosine \
    --query-labels demo-data/query.csv --gallery-labels demo-data/gallery.csv \
    --protocol no-camera --out demo-data/result --overwrite
