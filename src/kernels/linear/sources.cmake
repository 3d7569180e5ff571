set(LINEAR_SOURCES
  linear/linear.cpp linear/cpu_linear.cpp
  linear/rows/layout.cpp linear/rows/reference.cpp linear/rows/exact.cpp
  linear/rows8/layout.cpp linear/rows8/kernel.cpp)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  list(APPEND LINEAR_SOURCES linear/arm/bf16.cpp linear/arm/i8mm.cpp linear/arm/dotprod.cpp)
endif()
