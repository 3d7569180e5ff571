# Compiler flags of all targets. No -march: kernels are chosen at run time by instruction set.
set(MILLRACE_WARNINGS -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers)
add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:${MILLRACE_WARNINGS}>")
# The compiler must not fuse a*b+c on its own, so that all builds round alike; kernels use FMA explicitly.
add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-ffp-contract=off>)
# gcc's garbage collection from 128 MB on costs a twentieth of the build time and frees little.
add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=500000>")
add_link_options(-Wl,--build-id=sha1)
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  string(REPLACE "-O3" "-O2" CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")
endif()
if(MILLRACE_SANITIZE)
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${MILLRACE_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>")
  add_link_options(-fsanitize=${MILLRACE_SANITIZE})
  # Checks of every pointer cost compile time, and ASan reports what these would find.
  add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,Clang>:-fno-sanitize=null,object-size,vptr,return>")
  # 128-bit checked multiplication is in clang's runtime, not in gcc's.
  add_link_options($<$<CXX_COMPILER_ID:Clang>:--rtlib=compiler-rt>)
endif()
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER sh ${CMAKE_CURRENT_LIST_DIR}/ccache_compiler)
endif()
