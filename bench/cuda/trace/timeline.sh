#!/usr/bin/env bash
# bench/cuda/trace/timeline.sh [ARGUMENTS OF timeline]: when the blocks of each kernel of a decode step's layers start,
# request memory, receive it and end. Compiles the kernels again with time stamps; everything else comes from the
# library in build/cuda, which must exist.
set -euo pipefail
cd "$(dirname "$0")/../../.."
folder=build/cuda/timeline
mkdir -p $folder
sources="src/kernels/linear/cuda/plain/flat_wgmma.cu src/kernels/linear/cuda/plain/gemv_rows.cu src/kernels/attention/cuda/plan.cu
  src/kernels/attention/cuda/decode/head_64.cu src/kernels/attention/cuda/decode/head_128.cu bench/cuda/trace/timeline.cu"
flags="-std=c++20 -O3 -DMILLRACE_STAMPS -I src -I bench/cuda -gencode=arch=compute_90a,code=sm_90a"
for source in $sources; do
  echo "nvcc $flags -c $source -o $folder/$(basename "$source").o"
done | xargs -P "$(nproc)" -I{} sh -c '{}'
nvcc $flags $folder/*.cu.o build/cuda/src/kernels/libmillrace_kernels.a -o $folder/timeline
$folder/timeline $folder "$@"
python3 bench/cuda/trace/timeline.py $folder/*.bin
