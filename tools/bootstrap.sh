#!/usr/bin/env bash
# bootstrap.sh FOLDER: makes the private environment that the Makefile works from (nox, and uv where there is none).
# Needs a Python with pip, nothing else. The user's own site is not touched; PIP_* and UV_* settings are respected.
set -euo pipefail

folder=$1
python=${PYTHON:-python3}
here=$(dirname "$0")

if ! command -v "$python" >/dev/null; then
    echo "bootstrap: needs Python 3.10 or newer, found no '$python'; name one with: make PYTHON=/path/to/python3" >&2
    exit 2
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
    echo "bootstrap: needs Python 3.10 or newer, '$python' is $("$python" -V); name another with: make PYTHON=..." >&2
    exit 2
fi

if command -v uv >/dev/null; then
    uv venv --quiet --allow-existing --python "$python" "$folder"
    uv pip install --quiet --python "$folder/bin/python" --requirement "$here/requirements.txt"
    exit
fi

# Debian splits ensurepip off into a package of its own; a bare environment and the outer pip do as well.
if "$python" -c 'import ensurepip' 2>/dev/null; then
    "$python" -m venv "$folder"
    pip=("$folder/bin/python" -m pip)
else
    "$python" -m venv --without-pip "$folder"
    pip=("$python" -m pip --python "$folder/bin/python")
fi
echo "bootstrap: no uv found, installing it and nox into $folder"
"${pip[@]}" install --quiet --disable-pip-version-check uv --requirement "$here/requirements.txt"
