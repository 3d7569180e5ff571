#!/usr/bin/env bash
# Throwaway: variants of the streaming GEMM in whole models.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
[[ -e .carry/sysroot/env.sh ]] && source .carry/sysroot/env.sh
EIGHT=synthetic:llama-3-8b:bf16
bench() { timeout 60 build/cuda/millrace bench --device cuda -r 2 "$@" 2>&1 | grep -E '^(pp|tg)|rror' | awk '{printf "  %s b%s d%s: %s", $1, $2, $3, $5} END {print ""}'; }
cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES=90a-real > cfg.log 2>&1 || tail -n 20 cfg.log
timeout 300 ninja -C build/cuda -j "$(nproc)" -k 0 cuda_tests millrace > bld.log 2>&1 || { grep -E 'error|FAILED' -A6 bld.log | head -n 60; }
nvcc -std=c++20 -O3 -gencode=arch=compute_90a,code=sm_90a -Xptxas -v --expt-relaxed-constexpr --extended-lambda -Isrc -c src/kernels/linear/cuda/flat_stream.cu -o /tmp/fs.o 2>&1 | grep -E 'bfloat16|Used|spill' | grep -A2 bfloat | grep -E 'Used|spill' | head -n 24
timeout 60 build/cuda/tests/cuda/cuda_tests --gtest_brief=1 --gtest_filter='*CudaLinearTest.*/BF16:*CudaLinearTest.*/F16:CudaSharedNorm*:*CudaGoldenTest.Greedy*:CudaAttention*:CudaRope*:CudaSynthetic*:CudaNorm*' > t.log 2>&1
grep -hE 'Failure|actual:|Which is| with |seed|terminate|rror' t.log | cut -c1-200 | head -n 30
grep -hE 'FAILED|PASSED' t.log | cut -c1-120
nvcc -std=c++20 -O3 -gencode=arch=compute_90a,code=sm_90a -Xptxas -v --expt-relaxed-constexpr --extended-lambda -Isrc -c src/kernels/attention/cuda/prefill_hopper.cu -o /tmp/ph.o 2>&1 | grep -E 'Used|spill|setmax' | head -n 24
echo prompts; bench -m synthetic:llama-3.1-8b:bf16 -p 1024,4096,8192 -n 0 -b 1
echo default; bench -m $EIGHT -p 0 -n 24 -d 1024 -b 1,8,32,64
for k in stream-late stream-early stream-look stream-far stream-two stream-whole wgmma-deep; do
  echo "$k"; bench -m $EIGHT -p 0 -n 24 -d 1024 -b 1,8,32,64 --kernel linear=cuda_$k
done
echo stream-late, norms apart; bench -m $EIGHT -p 0 -n 24 -d 1024 -b 1,8,32,64 --kernel linear=cuda_stream-late --kernel norm=cuda
for a in cluster8 cluster4; do echo "stream-look $a"; bench -m $EIGHT -p 0 -n 24 -d 1024 -b 1,8,32 --kernel linear=cuda_stream-look --kernel attention=cuda_${a}_lazy; done
timeout 60 build/cuda/millrace tune --device cuda -m $EIGHT -b 64 | tail -n 3
build/cuda/millrace explain --device cuda -m $EIGHT -b 1,8,32,64 | grep -E -A9 '^(linear|attention)' | grep -E '^linear|^attention|cluster|stream|\*|deep' | cut -c1-90
echo tuned; bench -m $EIGHT -p 0 -n 24 -d 1024 -b 1,8,32,64
