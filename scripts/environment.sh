# Sourced by the other scripts. Sets ROOT (the checkout) and VENV (the environment: $STREAMEVAL_VENV,
# or .venv in the checkout), and defines make_environment.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
VENV="${STREAMEVAL_VENV:-$ROOT/.venv}"
[[ "$VENV" == /* ]] || VENV="$PWD/$VENV"

stop() {
    printf 'error: %s\n' "$1" >&2
    exit 2
}

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

# Print a Python of at least 3.11: $PYTHON where it is set, else the first of the usual names.
find_python() {
    local name
    if [[ -n "${PYTHON:-}" ]]; then
        command -v "$PYTHON" >/dev/null || stop "PYTHON is '$PYTHON', which is no program; name a Python 3.11 or newer"
        new_enough "$PYTHON" || stop "PYTHON is '$PYTHON': Python 3.11 or newer is needed ($("$PYTHON" --version 2>&1 | head -n 1))"
        printf '%s\n' "$PYTHON"
        return
    fi
    for name in python3.13 python3.12 python3.11 python3 python; do
        if new_enough "$name"; then
            printf '%s\n' "$name"
            return
        fi
    done
    stop "no Python 3.11 or newer is found; install one, or name it: PYTHON=/path/to/python3 bash $0"
}

# make_environment EXTRA[,EXTRA]: an environment with this checkout and these extras of it.
# What is there already is not installed again.
make_environment() {
    local extras="$1" python
    if [[ ! -x "$VENV/bin/python" ]]; then
        python="$(find_python)"
        printf 'Making the environment %s with %s\n' "$VENV" "$("$python" --version)" >&2
        "$python" -m venv "$VENV" || stop "$python can't make a virtual environment in $VENV; on Debian and Ubuntu install python3-venv, then remove $VENV and try again"
    fi
    new_enough "$VENV/bin/python" || stop "$VENV is an environment without Python 3.11 or newer; remove it, or name another: STREAMEVAL_VENV=DIR bash $0"
    # shellcheck disable=SC2086  # one argument an extra
    if ! "$VENV/bin/python" "$ROOT/scripts/installed.py" ${extras//,/ } >/dev/null 2>&1; then
        printf 'Installing streameval and what it needs (once; a minute or two)\n' >&2
        "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --editable "$ROOT[$extras]" ||
            stop "the installation into $VENV failed; pip's message is above"
    fi
}
