#!/usr/bin/env bash
# All benchmarks of an x86-64 machine with AMX, VNNI or AVX2: bench/x86/run.sh [PART...]
#
#   build      the program, its kernel tests and probes
#   tests      every kernel under every instruction set that the machine has
#   machine    its description and measured peak rates
#   tiles      the cost of AMX tile loads next to their products
#   kernels    the prompt kernels side by side: microseconds and GOP/s of one thread
#   share      the share of the int8 peak of the same cores at the same time, for each instruction set: bench/peak_share
#   sizes      scripts/search-kernels: the effect of the block sizes in the AMX kernels
#   tokens     millrace bench with the time of each op, 2 threads and all cores
#   peers      the same files under llama.cpp, interleaved
#
# Environment: BUILD, a build folder; TARGETS, what to build; LLAMA_BENCH, an existing llama-bench; MODELS and ROUNDS of
# peers; THREADS, thread counts for tokens and peers. Every step has a time limit, and a failed step does not stop the
# others.
cd "$(dirname "$0")/../.." || exit 1
parts=" ${*:-build tests machine tiles kernels tokens peers} "
cores=$(nproc)
build=${BUILD:-build/release}
wants() { [[ $parts == *" $1 "* ]] && printf '\n== %s (%d s)\n' "$1" "$SECONDS"; }

if wants build; then
  cmake --preset release -DMILLRACE_BENCH=ON 2>&1 | grep -A5 -i error
  timeout 240 ninja -C $build -j"$cores" ${TARGETS:-millrace kernel_probe peak_share linear_tests kernels_tests base_tests} 2>&1 | grep -E 'error:|FAILED|ninja:' | head -40
fi

if wants tests; then
  for test in kernels/linear kernels/kernels base/base; do
    timeout 120 $build/tests/"${test}"_tests --gtest_brief=1 2>&1 | tail -12 &
  done
  wait
fi

if wants machine; then
  lscpu | grep -E 'Model name|Thread|Core|Socket|NUMA|L1d|L2|L3|Hypervisor|MHz'
  for threads in 1 2 8 16; do
    [ $threads -gt "$cores" ] || timeout 60 $build/millrace doctor -t $threads --json | python3 -c '
import json, sys
ceilings = json.load(sys.stdin)["hardware"]["ceilings"]
print(sys.argv[1], "threads:", {key: round(value, 2) for key, value in ceilings.items() if isinstance(value, float)})' $threads
  done
fi

if wants tiles; then
  mkdir -p build
  for program in tile_rates tile_orders tile_states; do
    g++ -O3 -std=c++20 -w -I src -mamx-tile -mamx-int8 -mavx512f -mavx512dq -pthread bench/x86/$program.cpp -o build/$program && timeout 30 build/$program
  done
fi

if wants kernels; then
  problems=(Q4_1:3072x576:512 Q4_1:576x1536:512 Q8_0:2048x2048:128 Q4_0:2048x2048:128 Q4_K:2048x8192:128 Q4_K:16384x2048:128 Q6_K:16384x2048:512)
  for kernel in full_amx_bf16 full_vnni; do
    timeout 40 $build/bench/kernel_probe $kernel 1 "${problems[@]}" 2>&1 | awk -v name=$kernel '
      NF == 2 { split($1, p, /[:x]/); printf "%-18s %-22s %9.1f us %8.0f GOP/s\n", name, $1, $2, 2e-3 * p[2] * p[3] * p[4] / $2; next } { print }'
  done
fi

if wants share; then
  for threads in 1 8; do
    for kernel in full_amx_bf16 full_vnni full_avx2; do
      timeout 20 $build/bench/peak_share $kernel $threads Q4_1:3072x576:512 Q8_0:2048x2048:128 Q8_0:2048x2048:512 Q4_K:2048x8192:128
    done
  done
fi

wants sizes && timeout 150 scripts/search-kernels amx --threads 1 --rounds 1

if wants tokens; then
  for threads in ${THREADS:-2 $cores}; do
    for model in synthetic:smollm2-135m:Q4_1 synthetic:llama-3.2-1b:Q4_K_M; do
      timeout 60 $build/millrace bench --device cpu -m $model -t "$threads" -p 128,512 -n 32 -r 3 --ops 2>&1 | grep -vE 'angles|embedding|elementwise'
    done
  done
fi

if wants peers; then
  for threads in ${THREADS:-2 8}; do
    timeout 170 scripts/bench-peers ${LLAMA_BENCH:+--llama-bench "$LLAMA_BENCH"} --millrace $build/millrace --models "${MODELS:-135m,1b}" --rounds "${ROUNDS:-3}" \
      --threads $threads --out build/bench-x86
  done
fi
