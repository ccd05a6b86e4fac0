#!/usr/bin/env bash
# Everything of docs/reproduction.md that needs an H200, under $OUT; about seven minutes, no network.
#     OUT=results bash benchmarks/h200.sh
set -u
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}" OUT="${OUT:-results}" PYTHONWARNINGS=ignore
PYTHON="${PYTHON:-python}"
mkdir -p "$OUT"
begin=$(date +%s)
say() { echo "== $(($(date +%s) - begin)) s: $*"; }

# 1. Ways to run the kernel of Q: compiled side by side, then timed one after the other.
WAYS=("32 8 tf32x3" "64 16 tf32x3" "128 16 tf32x3" "64 8 tf32" "128 8 tf32" "32 4 tf32x3")
rm -f /tmp/q-way.json
say compiling
for way in "${WAYS[@]}"; do timeout 90 $PYTHON benchmarks/h200.py compile $way >"/tmp/q-${way// /-}.log" 2>&1 & done
wait
for way in "${WAYS[@]}"; do
  timeout 20 $PYTHON benchmarks/h200.py time $way 2>&1 | tail -n 1 | tee -a "$OUT/ways.txt"
done
say "fastest: $(cat /tmp/q-way.json 2>/dev/null)"

# 2. Does Q learn? All settings on streams of their own.
say "Q's validation loss"
timeout 110 $PYTHON benchmarks/h200.py table --runs 20 --device cuda --streams --out "$OUT/q_learning.md" | tail -n 60

# 3. The claims: full batches as before, then mini-batches from 10 points, then from 100 as far as time allows.
say "full batches, 10 runs"
timeout 100 $PYTHON benchmarks/h200.py reproduce full 10 full-batch all 10,100 | grep -v ' initial points, [0-9]* of ' | tail -n 45
say "mini-batches from 10 points, 10 runs"
timeout 150 $PYTHON benchmarks/h200.py reproduce mini10 10 learns,printed all 10 | tail -n 45
left=$((415 - $(date +%s) + begin))
say "mini-batches from 100 points, batches only, 10 runs ($left s left)"
[ "$left" -gt 20 ] && timeout "$left" $PYTHON benchmarks/h200.py reproduce mini100 10 learns,printed batching 100 | tail -n 45
say done
