#!/usr/bin/env bash
# bench/cuda/decode.sh [PART...]: builds the CUDA back-end, tests the decode kernels, and times decode and prompts of
# 16-bit models, tuned, and the effect of kernel choice and depth on a step. Every part has its own time limit; without
# arguments all parts run.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
export EIGHT=synthetic:llama-3-8b:bf16 SEVEN=synthetic:llama-2-7b:bf16 ONE=synthetic:llama-3.2-1b:bf16 LONG=synthetic:llama-3.1-8b:bf16
part() {  # part NAME SECONDS: runs part_NAME
  local begin=$SECONDS status=0
  printf '\n== %s\n' "$1"
  timeout "$2" bash -c "part_$1" 2>&1 || status=$?
  printf -- '-- %s: status %d, %d s\n' "$1" $status $((SECONDS - begin))
}
bench() { build/cuda/millrace bench --device cuda -r 2 "$@" | grep -E '^(pp|tg|  )'; }
part_build() {
  cmake --preset cuda "-DCMAKE_CUDA_ARCHITECTURES=${ARCHITECTURES:-90a-real}" > build-cuda.log 2>&1 || { tail -n 30 build-cuda.log; return 1; }
  ninja -C build/cuda -j "$(nproc)" -k 0 cuda_tests millrace > build-cuda.log 2>&1 || { grep -E 'error|FAILED' -A4 build-cuda.log | head -n 60; return 1; }
}
tests() {
  build/cuda/tests/cuda/cuda_tests --gtest_brief=1 "$@" > build/cuda-tests.log 2>&1
  local status=$?
  grep -hE 'actual:| with |seed|GPU:|terminate|rror' build/cuda-tests.log | cut -c1-200 | head -n 40
  grep -hE 'FAILED|PASSED' build/cuda-tests.log | cut -c1-120
  return $status
}
part_kernels() { tests --gtest_filter='*CudaLinearTest.*/BF16:*CudaLinearTest.*/F16:Cuda*'; }
part_layers() {
  nvcc -std=c++20 -O3 -I src -I bench/cuda -gencode=arch=compute_90a,code=sm_90a bench/cuda/layers.cu build/cuda/src/kernels/libmillrace_kernels.a \
    -o build/cuda/layers && build/cuda/layers
}
part_greedy() { tests --gtest_filter='*CudaGoldenTest.Greedy*'; }
part_tune() { build/cuda/millrace tune --device cuda -m "$EIGHT" -b 64; }
part_models() {
  bench -m "$EIGHT" -p 1024 -n 32 -d 1024 -b 1,8,16,32,64
  bench -m "$SEVEN" -p 0 -n 32 -d 1024 -b 1,8,32,64
  bench -m "$ONE" -p 512 -n 64 -d 512 -b 1,8
}
part_long() {
  bench -m "$LONG" -p 0 -n 16 -d 16384 -b 1
  bench -m "$SEVEN" -p 0 -n 16 -d 16384 -b 1
  bench -m "$LONG" -p 4096,8192 -n 0 -b 1
}
part_depth() { bench -m "$EIGHT" -p 0 -n 24 -d 64 -b 1,8,32,64; }  # a step almost without attention
part_linear() { for kernel in cuda_flat-mma cuda_wgmma cuda_wgmma-narrow cuda_wgmma-deep; do echo "$kernel"; bench -m "$EIGHT" -p 0 -n 24 -d 1024 -b 1,8,32 --kernel "linear=$kernel"; done; }
part_attention() { for kernel in cuda_cluster_lazy cuda_decode_lazy; do echo "$kernel"; bench -m "$EIGHT" -p 0 -n 24 -d 1024 -b 8,32,64 --kernel "attention=$kernel"; done; }
part_norms() { bench -m "$EIGHT" -p 0 -n 24 -d 1024 -b 8,32,64; echo 'norms apart'; bench -m "$EIGHT" -p 0 -n 24 -d 1024 -b 8,32,64 --kernel norm=cuda; }
part_trace() {
  bench/cuda/trace/step_times.sh "$EIGHT" 1024 1 8 32 64
  bench/cuda/trace/step_times.sh "$LONG" 16384 1
  bench/cuda/trace/step_times.sh "$ONE" 512 1
}
part_explain() { build/cuda/millrace explain --device cuda -m "$EIGHT" -b 1,3,5,8,16,32,48,64 | grep -E -A6 '^(linear|attention)' | grep -vE '^--|^$'; }
export -f bench tests part_build part_kernels part_layers part_greedy part_tune part_models part_long part_depth part_linear part_attention part_norms part_trace part_explain
declare -A limits=([build]=240 [kernels]=60 [layers]=60 [greedy]=20 [tune]=60 [models]=90 [long]=40 [depth]=30 [linear]=60 [attention]=60 [norms]=40 [trace]=120 [explain]=10)
parts=("$@")
[[ $# == 0 ]] && parts=(build kernels layers greedy tune models long depth linear attention norms trace explain)
for name in "${parts[@]}"; do
  [[ -v "limits[$name]" ]] || { echo "decode.sh: no part is called $name" >&2; exit 2; }
  part "$name" "${limits[$name]}"
done
