#!/bin/sh
# An environment with the peers that tests/peers compares with, and their tests in it:
#     sh tests/peers/environment.sh DIR
# verl is installed without its dependencies: they hold Ray, which its estimators never call, and an
# older numpy than ours. What they do need is in the extra `peers`.
set -eu
cd "$(dirname "$0")/../.."
[ -x "$1/bin/python" ] || python3 -m venv "$1"
"$1/bin/python" -m pip install -q "${TORCH:-torch>=2.11,<2.14}"
"$1/bin/python" -m pip install -q -e '.[peers]'
"$1/bin/python" -m pip install -q --no-deps "verl>=0.9,<0.10"
exec "$1/bin/python" -m pytest -n0 tests/peers
