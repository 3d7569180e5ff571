# XGrammar's C++ core, a reference for the tests of grammars: a static library from its source archive on PyPI. The archive is
# looked for in .deps/ and in the user's cache; where it is in neither it is fetched.
include(${CMAKE_CURRENT_LIST_DIR}/xgrammar_archive.cmake)

function(millrace_add_xgrammar)
  find_xgrammar_archive(archive)
  if(NOT archive)
    execute_process(COMMAND ${CMAKE_COMMAND} -P ${PROJECT_SOURCE_DIR}/cmake/fetch_xgrammar.cmake ERROR_VARIABLE output OUTPUT_QUIET)
    find_xgrammar_archive(archive)
  endif()
  if(NOT archive)
    message(FATAL_ERROR "${output}")
  endif()

  set(source ${CMAKE_BINARY_DIR}/_deps/xgrammar-${XGRAMMAR_VERSION})
  if(NOT EXISTS ${source}/include/xgrammar/xgrammar.h)
    file(ARCHIVE_EXTRACT INPUT ${archive} DESTINATION ${CMAKE_BINARY_DIR}/_deps
         PATTERNS "*/cpp/*" "*/include/xgrammar/*" "*/3rdparty/picojson/*" "*/3rdparty/dlpack/include/*")
  endif()
  file(GLOB sources ${source}/cpp/*.cc ${source}/cpp/support/*.cc ${source}/cpp/converter_ext/*.cc)  # not cpp/tvm_ffi: Python
  add_library(xgrammar STATIC ${sources})
  # Its files share most of what they compile; this one repeats a name of another.
  set_source_files_properties(${source}/cpp/json_schema_converter.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_include_directories(xgrammar SYSTEM PUBLIC ${source}/include ${source}/3rdparty/dlpack/include PRIVATE ${source}/3rdparty/picojson)
  target_compile_definitions(xgrammar PRIVATE XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0)
  target_compile_options(xgrammar PRIVATE -w $<$<CONFIG:Release>:-O1>)
  set_target_properties(xgrammar PROPERTIES CXX_STANDARD 17 UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
  target_link_libraries(xgrammar PUBLIC Threads::Threads)
endfunction()

millrace_add_xgrammar()
add_library(XGrammar::core ALIAS xgrammar)
