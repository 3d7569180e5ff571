# XGrammar's C++ core, built as a static library from its source archive on PyPI. The archive is looked for in .deps/ and
# in the user's cache; where it is in neither it is fetched, which scripts/install-deps does beforehand.
include(${CMAKE_CURRENT_LIST_DIR}/xgrammar_archive.cmake)

function(millrace_add_xgrammar)
  find_xgrammar_archive(archive)
  if(NOT archive)
    execute_process(COMMAND ${CMAKE_COMMAND} -P ${PROJECT_SOURCE_DIR}/cmake/fetch_xgrammar.cmake ERROR_VARIABLE output OUTPUT_QUIET)
    find_xgrammar_archive(archive)
  endif()
  if(NOT archive)
    # Rooms that do not need it can still be built.
    set(hint "${XGRAMMAR_ARCHIVE} is missing: run scripts/install-deps with a network, or put the file into .deps/")
    message(WARNING "${hint}")
    add_custom_target(xgrammar_missing COMMAND ${CMAKE_COMMAND} -E echo "${hint}" COMMAND ${CMAKE_COMMAND} -E false VERBATIM)
    add_library(xgrammar INTERFACE)
    add_dependencies(xgrammar xgrammar_missing)
    return()
  endif()

  set(source ${CMAKE_BINARY_DIR}/_deps/xgrammar-${XGRAMMAR_VERSION})
  if(NOT EXISTS ${source}/include/xgrammar/xgrammar.h)
    file(ARCHIVE_EXTRACT INPUT ${archive} DESTINATION ${CMAKE_BINARY_DIR}/_deps
         PATTERNS "*/cpp/*" "*/include/xgrammar/*" "*/3rdparty/picojson/*" "*/3rdparty/dlpack/include/*")
  endif()
  file(GLOB sources ${source}/cpp/*.cc ${source}/cpp/support/*.cc ${source}/cpp/converter_ext/*.cc)  # not cpp/tvm_ffi: Python
  # What reads grammars runs once a request and need not be fast; what fills masks runs once a token.
  set(readers ${sources})
  list(FILTER readers INCLUDE REGEX "/(converter_ext/.*|.*_converter|structural_tag|grammar_(parser|printer|builder))\\.cc$")
  list(REMOVE_ITEM sources ${readers})
  add_library(xgrammar_readers OBJECT ${readers})
  add_library(xgrammar STATIC ${sources} $<TARGET_OBJECTS:xgrammar_readers>)
  # Its files share most of what they compile; this one repeats a name of another.
  set_source_files_properties(${source}/cpp/json_schema_converter.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  foreach(target xgrammar xgrammar_readers)
    target_include_directories(${target} SYSTEM PUBLIC ${source}/include ${source}/3rdparty/dlpack/include PRIVATE ${source}/3rdparty/picojson)
    target_compile_definitions(${target} PRIVATE XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0)
    target_compile_options(${target} PRIVATE -w)
    set_target_properties(${target} PROPERTIES CXX_STANDARD 17 UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
    target_link_libraries(${target} PUBLIC Threads::Threads)
  endforeach()
  target_compile_options(xgrammar_readers PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

millrace_add_xgrammar()
add_library(XGrammar::core ALIAS xgrammar)
