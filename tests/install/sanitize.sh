#!/usr/bin/env bash
# Run the tests of the compiled engine under AddressSanitizer and UndefinedBehaviorSanitizer.
#
#     bash tests/install/sanitize.sh [python]
#
# The extension is built anew in a copy of the project; needs gcc and an environment with the
# test extra. Leaks are not looked for: the interpreter has its own.
set -euo pipefail
python=$(command -v "${1:-python}")
root=$(cd "$(dirname "$0")/../.." && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

(cd "$root" && cp -r setup.py pyproject.toml README.md LICENSE src tests "$copy")
rm -rf "$copy"/build "$copy"/src/demur/_kernels/*.so
cd "$copy"
CC=gcc CFLAGS="-g -O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all" \
  LDFLAGS="-fsanitize=address,undefined" "$python" setup.py -q build_ext --inplace

export LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)"
export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1
export DEMUR_ENGINE=compiled DEMUR_CASES="${DEMUR_CASES:-600}" PYTHONPATH="$copy/src"
export PYTHONMALLOC=malloc OPENBLAS_NUM_THREADS=1
"$python" -c 'from demur._kernels import compiled; assert compiled.AVAILABLE'
"$python" -m pytest -q -p no:cacheprovider -k "not numpy" \
  tests/property/test_compiled.py tests/property/test_engines.py tests/property/test_margin.py \
  tests/property/test_metrics_engines.py tests/property/test_tune_brute_force.py \
  tests/unit/test_stairs.py tests/unit/test_retune.py tests/unit/test_grid.py
