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
  # A quarter of gcc's compile time goes to these checks of every pointer. ASan reports what they would find in tests,
  # and the fuzzers, which clang compiles, keep them.
  add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-sanitize=null,object-size,pointer-overflow,vptr,return>")
endif()
find_program(CCACHE ccache)
if(CCACHE)
  # Without these, ccache skips files with a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
endif()
