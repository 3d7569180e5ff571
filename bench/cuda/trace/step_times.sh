#!/usr/bin/env bash
# bench/cuda/trace/step_times.sh MODEL DEPTH BATCH... [-- OPTIONS]: a table of the kernels of a decode step for each
# batch size, with their times. Needs CUPTI (part of the CUDA toolkit and of PyTorch) and build/cuda/millrace. CUPTI
# serializes kernels while it traces, so the times are those of kernels alone; compare with the first line, `millrace
# bench` without tracing, for the effect of overlap.
set -uo pipefail
cd "$(dirname "$0")/../../.." || exit
model=$1 depth=$2
shift 2
batches=()
while (($# > 0)) && [[ $1 != -- ]]; do batches+=("$1"); shift; done
shift || true
out=build/step-times
mkdir -p "$out"
if [[ ! -e $out/kernel_trace.so ]]; then
  roots=(/usr/local/cuda /usr/local/cuda/extras/CUPTI /usr/local/cuda/targets/*-linux
         "$(python3 -c 'import nvidia, os; print(os.path.join(list(nvidia.__path__)[0], "cu13"))' 2> /dev/null)")
  header='' library=''
  for root in "${roots[@]}"; do
    [[ -z $header && -e $root/include/cupti.h ]] && header=$root/include
    for place in "$root/lib64" "$root/lib"; do
      [[ -z $library && -n $root ]] && library=$(find -L "$place" -maxdepth 1 -name 'libcupti.so*' 2> /dev/null | head -n 1)
    done
  done
  [[ -n $header && -n $library ]] || { echo "no CUPTI: headers '$header', library '$library'"; exit 1; }
  g++ -std=c++20 -O2 -shared -fPIC -I "$header" -I /usr/local/cuda/include bench/cuda/trace/kernel_trace.cpp -o "$out/kernel_trace.so" \
    "$library" "-Wl,-rpath,$(dirname "$library")" || exit 1
fi
for batch in "${batches[@]}"; do
  command=(build/cuda/millrace bench --device cuda -m "$model" -p 0 -n 12 -d "$depth" -b "$batch" -r 1 "$@")
  printf '\n-- %s, depth %s, batch %s\n' "$model" "$depth" "$batch"
  timeout 60 "${command[@]}" | grep -E '^ *tg'
  CUDA_INJECTION64_PATH=$PWD/$out/kernel_trace.so KERNEL_TRACE=$out/trace.tsv timeout 60 "${command[@]}" > "$out/traced.log" 2>&1
  grep -E '^ *tg' "$out/traced.log" | sed 's/$/   (traced)/'
  python3 bench/cuda/trace/step_times.py "$out/trace.tsv" 8 || tail -n 5 "$out/traced.log"
  rm -f "$out/trace.tsv"
done
