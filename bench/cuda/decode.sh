#!/usr/bin/env bash
# bench/cuda/decode.sh: builds the CUDA back-end, tests what decode runs on, and times decode and prompts of 16-bit models, tuned, with
# the chosen kernels and with one kernel for all linear layers. Every part has a limit of its own.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
part() {  # part NAME SECONDS COMMAND...
  local begin=$SECONDS status=0
  printf '\n== %s\n' "$1"
  timeout "$2" bash -c '"$@"' part "${@:3}" 2>&1 || status=$?
  printf -- '-- %s: status %d, %d s\n' "$1" $status $((SECONDS - begin))
}
build() {
  cmake --preset cuda "-DCMAKE_CUDA_ARCHITECTURES=${ARCHITECTURES:-90a-real}" > build-cuda.log 2>&1 || { tail -n 30 build-cuda.log; return 1; }
  ninja -C build/cuda -j "$(nproc)" -k 0 cuda_tests millrace > build-cuda.log 2>&1 || { grep -E 'error|FAILED' -A4 build-cuda.log | head -n 60; return 1; }
}
tests() {
  build/cuda/tests/cuda/cuda_tests --gtest_brief=1 "$@" > build/cuda-tests.log 2>&1
  local status=$?
  grep -hE 'actual:| with |attention_test.cpp:7|GPU:|terminate|rror' build/cuda-tests.log | cut -c1-200 | head -n 30
  grep -hE 'FAILED|PASSED' build/cuda-tests.log | cut -c1-120
  return $status
}
bench() { build/cuda/millrace bench --device cuda -r 2 "$@" | grep -E '^(pp|tg|  )'; }
explain() { build/cuda/millrace explain --device cuda "$@" | grep -E -A3 '^(linear|attention)' | grep -v '^--'; }
export -f build tests bench explain
eight=synthetic:llama-3-8b:bf16 seven=synthetic:llama-2-7b:bf16 one=synthetic:llama-3.2-1b:bf16
part build 240 build
part "kernels" 60 tests --gtest_filter='*CudaLinearTest.*/BF16:*CudaLinearTest.*/F16:Cuda*'
part "golden models, greedy" 20 tests --gtest_filter='*CudaGoldenTest.Greedy*'
part "tune 8B" 40 build/cuda/millrace tune --device cuda -m $eight
part "8B" 40 bench -m $eight -p 1024 -n 32 -d 1024 -b 1,8,32,64
part "early starts" 20 bash -c "build/cuda/millrace bench --device cuda -m $eight -p 0 -n 4 -d 1024 -b 1 -r 1 -vv 2>&1 | grep recorded"
for kernel in cuda_gemv-rows cuda_flat-mma cuda_wgmma-narrow cuda_wgmma; do
  part "8B with $kernel" 30 bench -m $eight -p 0 -n 32 -d 1024 -b 1,8,32 --kernel "linear=$kernel"
done
part "tune 1B" 20 build/cuda/millrace tune --device cuda -m $one
part "1B" 20 bench -m $one -p 512 -n 64 -d 512 -b 1,8
part "tune 7B" 40 build/cuda/millrace tune --device cuda -m $seven
part "7B" 40 bench -m $seven -p 1024 -n 32 -d 1024 -b 1,8,32,64
part "8B, depth 7000" 40 bench -m $eight -p 0 -n 16 -d 7000 -b 1
part "explain 8B" 10 explain -m $eight -b 1,8,32,64
