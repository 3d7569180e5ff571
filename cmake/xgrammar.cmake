# XGrammar's C++ core, the reference of the grammar tests: a static library built from its source archive on PyPI.
include(${CMAKE_CURRENT_LIST_DIR}/pypi_archive.cmake)

function(millrace_add_xgrammar)
  set(name xgrammar-0.2.8)
  pypi_archive(archive problem xgrammar ${name}.tar.gz 8305646fd2b319d6c3003f51a1665e54cbbe9cba1fb636bc41d0b46434ccbb80)
  if(problem)
    message(FATAL_ERROR "${problem}")
  endif()
  set(source ${CMAKE_BINARY_DIR}/_deps/${name})
  if(NOT EXISTS ${source}/include/xgrammar/xgrammar.h)
    file(ARCHIVE_EXTRACT INPUT ${archive} DESTINATION ${CMAKE_BINARY_DIR}/_deps
         PATTERNS "*/cpp/*" "*/include/xgrammar/*" "*/3rdparty/picojson/*" "*/3rdparty/dlpack/include/*")
  endif()
  file(GLOB sources ${source}/cpp/*.cc ${source}/cpp/support/*.cc ${source}/cpp/converter_ext/*.cc)  # not cpp/tvm_ffi: Python bindings
  add_library(xgrammar STATIC ${sources})
  # Unity build, but this file repeats a name of another.
  set_source_files_properties(${source}/cpp/json_schema_converter.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_include_directories(xgrammar SYSTEM PUBLIC ${source}/include ${source}/3rdparty/dlpack/include PRIVATE ${source}/3rdparty/picojson)
  target_compile_definitions(xgrammar PRIVATE XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0)
  target_compile_options(xgrammar PRIVATE -w $<$<CONFIG:Release>:-O1>)
  set_target_properties(xgrammar PROPERTIES CXX_STANDARD 17 UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
  target_link_libraries(xgrammar PUBLIC Threads::Threads)
endfunction()

millrace_add_xgrammar()
add_library(XGrammar::core ALIAS xgrammar)
