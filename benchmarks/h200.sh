#!/usr/bin/env bash
# Everything of docs/reproduction.md that needs an H200, under $OUT; about a quarter of an hour, no network.
#     OUT=results bash benchmarks/h200.sh
set -u
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}" OUT="${OUT:-results}" PYTHONWARNINGS=ignore
PYTHON="${PYTHON:-python}"
mkdir -p "$OUT"
begin=$(date +%s)
say() { echo "== $(($(date +%s) - begin)) s: $*"; }
reproduce() { $PYTHON -m aicau reproduce all --device cuda --out "$OUT/$1" "${@:2}" | tail -n 45; }

say "a step of Q"
$PYTHON benchmarks/h200.py | tee "$OUT/steps.txt"
say "Q's validation loss"
$PYTHON benchmarks/q_learning.py --runs 20 --device cuda --streams --out "$OUT/q_learning.md" | tail -n 60
say "mini-batches, 10 runs"
reproduce mini --runs 10
say "full batches, 10 runs"
reproduce full --runs 10 --preset full-batch
say "full batches, 50 runs"
reproduce full50 --runs 50 --preset full-batch
say done
