#!/bin/bash
# Builds the attention and small-op benchmarks with nvcc alone, runs them, and PyTorch's attention beside them.
# usage: bench/cuda/attention.sh [BUILD_FOLDER]
cd "$(dirname "$0")/../.." || exit 1
build=${1:-build/cuda-bench}
flags="-std=c++20 -O3 -Isrc -gencode=arch=compute_90a,code=sm_90a"
attention_sources="bench/cuda/attention.cu $(ls src/kernels/attention/cuda/*.cu)"
small_sources="bench/cuda/small_ops.cu $(ls src/kernels/{activation,embedding,norm,rope}/cuda/*.cu)"

objects() {
  for source in "$@"; do echo "$build/$(basename "$source").o"; done
}
build_all() {
  for source in $attention_sources $small_sources; do
    echo "timeout 200 nvcc $flags -c $source -o $build/$(basename "$source").o"
  done | xargs -P "$(nproc)" -I{} sh -c '{} || echo "did not build: {}"'
  nvcc $flags $(objects $attention_sources) -o "$build/attention"
  nvcc $flags $(objects $small_sources) -o "$build/small_ops"
}

mkdir -p "$build"
rm -f "$build"/*.cu.o "$build"/attention "$build"/small_ops
time build_all
failed=0
run() { timeout "$@" || { echo "exit $?: $*"; failed=1; }; }
for kind in decode cluster prefill hopper general; do run 60 "$build/attention" check $kind; done
run 30 "$build/small_ops"
run 60 "$build/attention" decode
run 30 "$build/attention" prefill
run 30 "$build/attention" prefill hopper
timeout 60 ncu --clock-control none -k regex:decode_attention \
  --metrics gpu__time_duration.sum,dram__bytes_read.sum.per_second,launch__grid_size \
  "$build/attention" once 2>&1 | grep -E "duration|dram__|grid_size"
run 70 python3 bench/cuda/attention_anchor.py
exit $failed
