set(LINEAR_SOURCES
  linear/linear.cpp linear/estimate.cpp linear/cpu_linear.cpp
  linear/rows/layout.cpp linear/rows/kernel.cpp linear/rows/reference.cpp linear/rows/plain.cpp linear/rows/exact.cpp
  linear/rows8/layout.cpp linear/rows8/kernel.cpp)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  list(APPEND LINEAR_SOURCES linear/rows8/arm/bf16.cpp linear/rows8/arm/i8mm.cpp linear/rows8/arm/dotprod.cpp linear/rows8/arm/neon.cpp
    linear/rows/arm/half_rows.cpp linear/rows/arm/fhm.cpp linear/rows/arm/fp16.cpp)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|amd64|AMD64")
  list(APPEND LINEAR_SOURCES linear/rows8/x86/amx.cpp linear/rows8/x86/vnni.cpp linear/rows8/x86/avx2.cpp)
endif()
set(LINEAR_CUDA_HOST_SOURCES
  linear/cuda/linear.cpp linear/cuda/families.cpp linear/cuda/packed.cpp linear/cuda/cublaslt.cpp linear/cuda/plain/flat_cut.cpp)
set(LINEAR_CUDA_SOURCES
  ${LINEAR_CUDA_HOST_SOURCES}
  linear/cuda/f32_rows.cu linear/cuda/file_rows.cu linear/cuda/epilogues.cu linear/cuda/split.cu linear/cuda/pack.cu
  linear/cuda/plain/flat_mma.cu linear/cuda/plain/flat_wgmma.cu linear/cuda/plain/gemv.cu linear/cuda/plain/gemv_rows.cu
  linear/cuda/plain/rows.cu
  linear/cuda/quantized/few.cu linear/cuda/quantized/gemv.cu linear/cuda/quantized/mma.cu linear/cuda/quantized/wgmma.cu
  linear/cuda/quantized/flat.cu linear/cuda/quantized/flat_bytes.cu linear/cuda/quantized/flat_five.cu
  linear/cuda/quantized/flat_legacy.cu linear/cuda/quantized/flat_super.cu linear/cuda/quantized/flat_table.cu
  linear/cuda/quantized/instances_five.cu linear/cuda/quantized/instances_fp4.cu linear/cuda/quantized/instances_iq4.cu
  linear/cuda/quantized/instances_legacy.cu linear/cuda/quantized/instances_super.cu)
# Register tiles are arrays, so their loops must be unrolled completely, which -O2 does not do. GCC must keep the order of
# the source: hoisted loads would spill the accumulators.
set_source_files_properties(linear/rows/plain.cpp linear/rows/exact.cpp PROPERTIES
  COMPILE_OPTIONS "-O3;$<$<CXX_COMPILER_ID:GNU>:-fno-schedule-insns>")
