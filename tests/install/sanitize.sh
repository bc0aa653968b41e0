#!/usr/bin/env bash
# Run the tests of the compiled engine under AddressSanitizer and UndefinedBehaviorSanitizer.
#
#     bash tests/install/sanitize.sh [python]
#
# The extension is built anew in a copy of the project; needs gcc and an environment with the
# test extra, and says so where gcc has no sanitizers. Leaks are not looked for: the interpreter
# has its own. DEMUR_CASES sets the length of the property tests.
set -euo pipefail
python=$(command -v "${1:-python}")
python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python")
root=$(cd "$(dirname "$0")/../.." && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

sanitizers="-fsanitize=address,undefined"
if ! echo 'int main(void) { return 0; }' | gcc $sanitizers -x c - -o "$copy/probe" 2>/dev/null ||
  ! "$copy/probe" 2>/dev/null; then
  echo "gcc has no sanitizers here: the compiled engine is not run under them"
  exit 0
fi

(cd "$root" && cp -r setup.py pyproject.toml README.md LICENSE src tests "$copy")
rm -rf "$copy"/build "$copy"/src/demur/_kernels/*.so
cd "$copy"
CC=gcc CFLAGS="-g -O1 -fno-omit-frame-pointer $sanitizers -fno-sanitize-recover=all" \
  LDFLAGS="$sanitizers" "$python" setup.py -q build_ext --inplace

export LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)"
export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1
export DEMUR_ENGINE=compiled DEMUR_CASES="${DEMUR_CASES:-150}" PYTHONPATH="$copy/src"
export PYTHONMALLOC=malloc OPENBLAS_NUM_THREADS=1
"$python" -c 'from demur._kernels import compiled; assert compiled.AVAILABLE'
"$python" -m pytest -qq -p no:cacheprovider -k "not numpy" \
  tests/property/test_compiled.py tests/property/test_engines.py tests/property/test_growing.py \
  tests/property/test_margin.py tests/property/test_boxes.py tests/property/test_all_levels.py \
  tests/property/test_metrics_engines.py tests/property/test_tune_brute_force.py \
  tests/property/test_row_passes.py tests/property/test_frontier_doubts.py \
  tests/unit/test_engine_boundary.py tests/unit/test_stairs.py tests/unit/test_retune.py \
  tests/unit/test_grid.py
echo "the compiled engine ran under AddressSanitizer and UndefinedBehaviorSanitizer"
