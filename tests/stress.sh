#!/bin/sh
# Run what needs real processes, browsers or links again and again on a busy machine; every pass is counted, none stops.
# Eight files at once are each other's load: 8 to 20 on two cores.
# Usage: tests/stress.sh [pytest arguments], by default all such tests. TIMES=20, WORKERS=8 and LOAD=0, the number of
# busy loops beside the tests (for a few files, which are no load by themselves), may be set.
set -eu
python="${BIN:-.venv/bin}/python"
i=0
loads=""
trap 'for pid in $loads; do kill "$pid" 2>/dev/null || true; done' EXIT
trap 'exit 130' INT TERM
while [ "$i" -lt "${LOAD:-0}" ]; do
  "$python" -c 'while True: pass' &
  loads="$loads $!"
  i=$((i + 1))
done
i=1
bad=0
while [ "$i" -le "${TIMES:-20}" ]; do
  "$python" -m pytest -q -p no:cacheprovider --workers "${WORKERS:-8}" \
    -m "processes or browser or flower or links" "$@" || bad=$((bad + 1))
  echo "pass $i of ${TIMES:-20}, $bad failed so far; load of the last 5 minutes: $(uptime | sed 's/.*average[s]*: //' | cut -d, -f2)"
  i=$((i + 1))
done
test "$bad" -eq 0
