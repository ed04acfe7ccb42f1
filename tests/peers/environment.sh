#!/bin/sh
# An environment with the peers that tests/peers compares with:
#     sh tests/peers/environment.sh DIR && DIR/bin/python -m pytest tests/peers
# verl is installed without its dependencies, since its estimators need few of them (not Ray).
set -eu
python3 -m venv "$1"
"$1/bin/pip" install "torch>=2.11,<2.14" "trl>=1.16,<2" pytest hypothesis rfc8785 \
    tensordict omegaconf hydra-core codetiming orjson
"$1/bin/pip" install --no-deps "verl>=0.9,<0.10"
