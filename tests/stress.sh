#!/bin/sh
# Run what needs real processes, browsers or links again and again beside a load of 6, until one fails.
# Usage: tests/stress.sh [pytest arguments], by default all such tests; TIMES=20, LOAD=6 and WORKERS=5 may be set.
set -eu
python="${BIN:-.venv/bin}/python"
i=0
loads=""
trap 'for pid in $loads; do kill "$pid" 2>/dev/null || true; done' EXIT
trap 'exit 130' INT TERM
while [ "$i" -lt "${LOAD:-6}" ]; do
  "$python" -c 'while True: pass' &
  loads="$loads $!"
  i=$((i + 1))
done
i=1
while [ "$i" -le "${TIMES:-20}" ]; do
  echo "time $i of ${TIMES:-20}, with a load of ${LOAD:-6}, $(date)"
  "$python" -m pytest -x -p no:cacheprovider --workers "${WORKERS:-5}" \
    -m "processes or browser or flower or links" "$@"
  i=$((i + 1))
done
