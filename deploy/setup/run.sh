#!/bin/sh
# Finds a Python that can make a virtual environment and hands over to deploy.setup. PYTHON=... decides instead.
cd "$(dirname "$0")/../.." || exit 1
seen=""
for python in ${PYTHON:-python3.11 python3.12 python3.13 python3}; do
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
    if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        seen="$seen\n  $python is $version: too old"
    elif ! "$python" -c 'import venv, ensurepip, fcntl' 2>/dev/null; then
        seen="$seen\n  $python ($version) cannot make environments: install its venv package (Debian: python3-venv)"
    else
        exec "$python" -m deploy.setup "$@"
    fi
done
printf "speedtier needs Python 3.11 or newer with venv; none was found.%b\n" "$seen" >&2
echo "Install one, or name it: make setup PYTHON=/path/to/python3" >&2
exit 1
