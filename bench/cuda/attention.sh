#!/bin/bash
# Builds bench/cuda/attention.cu with nvcc alone and runs it beside PyTorch's attention: check, decode, prefill.
# usage: bench/cuda/attention.sh [BUILD_FOLDER]
cd "$(dirname "$0")/../.." || exit 1
build=${1:-build/cuda-bench}
mkdir -p "$build"
flags="-std=c++20 -O3 -Isrc -gencode=arch=compute_90a,code=sm_90a"

build_all() {
  local sources
  sources="bench/cuda/attention.cu $(ls src/kernels/attention/cuda/*.cu)"
  for source in $sources; do
    echo "timeout 200 nvcc $flags -c $source -o $build/$(basename "$source").o"
  done | xargs -P "$(nproc)" -I{} sh -c '{}' || return 1
  nvcc $flags "$build"/*.cu.o -o "$build/attention"
}

rm -f "$build"/*.cu.o "$build/attention"
time build_all || exit 1
failed=0
timeout 100 "$build/attention" check || failed=1
timeout 60 "$build/attention" decode || failed=1
timeout 40 "$build/attention" prefill || failed=1
timeout 60 ncu --clock-control none -k regex:decode_attention \
  --metrics gpu__time_duration.sum,dram__bytes_read.sum.per_second,launch__occupancy_limit_registers,launch__grid_size \
  "$build/attention" once 2>&1 | grep -E "decode_attention|duration|dram__|grid_size" | cut -c1-140
timeout 70 python3 bench/cuda/attention_anchor.py || failed=1
exit $failed
