#!/usr/bin/env bash
# bench/cuda/prompt.sh [PART...]: long prompts on a GPU: checks the attention kernel and times it over lengths next to
# PyTorch's flash and cuDNN; times whole models and each kernel of a prompt. Every part has its own time limit; without
# arguments all parts run.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
export EIGHT=synthetic:llama-3.1-8b:bf16 SEVEN=synthetic:llama-2-7b:bf16 FOLDER=build/cuda-prompt
part() {  # part NAME SECONDS: runs part_NAME
  local begin=$SECONDS status=0
  printf '\n== %s\n' "$1"
  timeout "$2" bash -c "part_$1" 2>&1 || status=$?
  printf -- '-- %s: status %d, %d s\n' "$1" $status $((SECONDS - begin))
}
compile() { nvcc -std=c++20 -O3 -Isrc -gencode=arch=compute_90a,code=sm_90a -c "$1" -o "$FOLDER/$(basename "$1" .cu).o" || echo "did not build: $1"; }
part_build() {
  mkdir -p "$FOLDER"
  for source in bench/cuda/attention.cu src/kernels/attention/cuda/{general,occupancy,plan}.cu src/kernels/attention/cuda/{decode,prefill}/*.cu; do compile "$source" & done
  wait
  nvcc "$FOLDER"/*.o -o "$FOLDER/attention"
}
part_check() { for which in hopper each; do timeout 20 "$FOLDER/attention" check $which; done; }
part_sanitize() {
  for tool in memcheck racecheck; do timeout 80 compute-sanitizer --tool $tool --error-exitcode 9 "$FOLDER/attention" check hopper 2>&1 | tail -n 4; done
}
part_kernels() { for which in hopper each; do echo "$which"; timeout 20 "$FOLDER/attention" prompts $which; done; }
part_anchor() { python3 bench/cuda/attention_anchor.py --prompts; }
part_counters() {
  ncu --clock-control none -k regex:prefill_warpgroup -s 2 -c 1 --section SpeedOfLight --section WarpStateStats --section ComputeWorkloadAnalysis \
    --section MemoryWorkloadAnalysis --metrics lts__t_sectors_op_read.sum,lts__t_bytes.sum.per_second,smsp__inst_executed.sum,smsp__cycles_active.avg \
    "$FOLDER/attention" once prompt 2>&1 | grep -vE '^==|^ *$' | cut -c1-140
}
bench() { build/cuda/millrace bench --device cuda -r 3 -n 0 -b 1 "$@" | grep -E '^pp'; }
part_tune() { for model in "$EIGHT" "$SEVEN"; do build/cuda/millrace tune --device cuda -m "$model" -b 64 | tail -n 3; done; }
part_models() { for model in "$EIGHT" "$SEVEN"; do echo "$model"; bench -m "$model" -p 1024,2048,4096,8192; done; }
part_chunks() { for chunk in 1024 2048 8192; do echo "chunks of $chunk"; bench -m "$EIGHT" -p 8192 --chunk $chunk; done; }
trace() {  # trace MODEL ROWS: the kernels of the last prompt, by name and grid
  KERNEL_TRACE=$FOLDER/trace.tsv CUDA_INJECTION64_PATH=$PWD/build/step-times/kernel_trace.so \
    timeout 40 build/cuda/millrace bench --device cuda -m "$1" -p "$2" -n 0 -b 1 -r 1 > "$FOLDER/trace.log" 2>&1
  echo "$1 prompt of $2 (traced: $(grep -E '^pp' "$FOLDER/trace.log" | awk '{print $5}') tokens/s)"
  python3 bench/cuda/trace/step_times.py "$FOLDER/trace.tsv" 1 | head -n 24 | cut -c1-150
  rm -f "$FOLDER/trace.tsv"
}
export -f compile bench trace
part_trace() {
  bash bench/cuda/trace/step_times.sh "$EIGHT" 64 1 > "$FOLDER/step-times.log" 2>&1  # builds the tracer
  trace "$EIGHT" 8192
  trace "$EIGHT" 1024
  trace "$SEVEN" 8192
}
limits="build 150 check 40 sanitize 170 kernels 40 anchor 60 counters 40 tune 70 models 60 chunks 60 trace 100"
for name in ${*:-build check sanitize kernels anchor counters tune models chunks trace}; do
  limit=$(grep -oE "\b$name [0-9]+" <<< "$limits" | cut -d' ' -f2)
  export -f "part_$name"
  part "$name" "${limit:-60}"
done
