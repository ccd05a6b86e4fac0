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
quiet() { grep -v ' initial points, [0-9]* of ' | tail -n 45; }

say "a step of Q"
$PYTHON benchmarks/h200.py time | tee "$OUT/steps.txt"
say "Q's validation loss"
$PYTHON benchmarks/q_learning.py --runs 20 --device cuda --streams --out "$OUT/q_learning.md" | tail -n 60
say "mini-batches, 10 runs"
$PYTHON benchmarks/h200.py reproduce mini 10 learns,printed all 10,100 | quiet
say "full batches, 10 runs"
$PYTHON benchmarks/h200.py reproduce full 10 full-batch all 10,100 | quiet
say "full batches, 50 runs"
$PYTHON benchmarks/h200.py reproduce full50 50 full-batch all 10,100 | quiet
say done
