# Files spend most of their compile time in templates of JSON, CLI11 or gtest. Unity builds of sixteen files halve the
# build time. Rooms whose files must stay separate switch them off.
set(CMAKE_UNITY_BUILD ON)
set(CMAKE_UNITY_BUILD_BATCH_SIZE 16)

# millrace_precompile(TARGET arguments of target_precompile_headers...)
function(millrace_precompile target)
  target_precompile_headers(${target} ${ARGN})
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)  # for ccache
endfunction()

# millrace_room(NAME [COLD] SOURCES a.cpp b.cpp LINKS other_room Some::Library [PRECOMPILED headers])
# One static library per room of src/. A room links only the rooms that it may include (scripts/check-includes). A COLD
# room takes no part in a step: it compiles at -O1, in two thirds of the time. The standard library, JSON and fmt are
# precompiled once for hot and once for cold rooms, by the first room of each kind, unless a room has its own
# PRECOMPILED headers or no unity build.
function(millrace_room name)
  cmake_parse_arguments(ROOM "COLD" "" "SOURCES;LINKS;PRECOMPILED" ${ARGN})
  add_library(millrace_${name} STATIC ${ROOM_SOURCES})
  target_include_directories(millrace_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  list(TRANSFORM ROOM_LINKS REPLACE "^([a-z_]+)$" "millrace_\\1")
  target_link_libraries(millrace_${name} PUBLIC ${ROOM_LINKS})
  if(ROOM_COLD)
    target_compile_options(millrace_${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  get_property(first GLOBAL PROPERTY MILLRACE_PRECOMPILED_COLD_${ROOM_COLD})
  if(ROOM_PRECOMPILED)
    millrace_precompile(millrace_${name} PRIVATE ${ROOM_PRECOMPILED})
  elseif(first AND CMAKE_UNITY_BUILD)
    millrace_precompile(millrace_${name} REUSE_FROM ${first})
  elseif(CMAKE_UNITY_BUILD)
    millrace_precompile(millrace_${name} PRIVATE
      <algorithm> <chrono> <filesystem> <fstream> <functional> <map> <memory> <optional> <random> <span> <string> <unordered_map> <vector>
      <fmt/format.h> <nlohmann/json.hpp>)
    set_property(GLOBAL PROPERTY MILLRACE_PRECOMPILED_COLD_${ROOM_COLD} millrace_${name})
  endif()
endfunction()

# millrace_test(NAME SOURCES x_test.cpp LINKS room) builds tests/NAME_tests and registers each of its cases with ctest.
function(millrace_test name)
  cmake_parse_arguments(TEST "" "" "SOURCES;LINKS" ${ARGN})
  millrace_test_tool(${name}_tests SOURCES ${TEST_SOURCES} LINKS ${TEST_LINKS} GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name}_tests)
endfunction()

# millrace_test_tool(NAME SOURCES x.cpp LINKS room) builds a program that tests or scripts run.
function(millrace_test_tool name)
  cmake_parse_arguments(TOOL "" "" "SOURCES;LINKS" ${ARGN})
  add_executable(${name} ${TOOL_SOURCES})
  millrace_test_target(${name} ${TOOL_LINKS})
endfunction()

# millrace_test_objects(NAME SOURCES x_test.cpp LINKS room) compiles tests that several programs link as NAME.
function(millrace_test_objects name)
  cmake_parse_arguments(OBJECTS "" "" "SOURCES;LINKS" ${ARGN})
  add_library(millrace_${name} OBJECT ${OBJECTS_SOURCES})
  # As programs are compiled, since the precompiled headers are those of a program.
  set_target_properties(millrace_${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(millrace_${name} PRIVATE -fPIE)
  millrace_test_target(millrace_${name} ${OBJECTS_LINKS} GTest::gmock GTest::gtest)
endfunction()

function(millrace_test_target name)
  list(TRANSFORM ARGN REPLACE "^([a-z_]+)$" "millrace_\\1" OUTPUT_VARIABLE links)
  target_link_libraries(${name} PRIVATE ${links})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)  # the tested code is optimized; tests need not be
  # All tests share one set of precompiled headers, compiled by the first, since their definitions are equal.
  target_compile_definitions(${name} PRIVATE MILLRACE_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data" GTEST_HAS_PTHREAD=1)
  if(MILLRACE_SANITIZE)
    target_compile_definitions(${name} PRIVATE MILLRACE_SANITIZED)
    # UBSan checks the tested code. In the tests' own code its checks and optimization take longer to compile than all else.
    target_compile_options(${name} PRIVATE -fno-sanitize=undefined $<$<CXX_COMPILER_ID:Clang>:-O0>)
  endif()
  if(name STREQUAL "base_tests")
    millrace_precompile(base_tests PRIVATE <gmock/gmock.h> <gtest/gtest.h> <nlohmann/json.hpp> <fmt/format.h> <random>)
  else()
    millrace_precompile(${name} REUSE_FROM base_tests)
  endif()
endfunction()

# millrace_fuzzer(NAME LINKS room) builds fuzz/NAME_fuzz.cpp with libFuzzer; its seeds are in fuzz/seeds/NAME.
function(millrace_fuzzer name)
  cmake_parse_arguments(FUZZER "" "" "LINKS" ${ARGN})
  list(TRANSFORM FUZZER_LINKS REPLACE "^([a-z_]+)$" "millrace_\\1")
  add_executable(${name}_fuzz ${PROJECT_SOURCE_DIR}/fuzz/${name}_fuzz.cpp)
  target_link_libraries(${name}_fuzz PRIVATE ${FUZZER_LINKS})
  target_link_options(${name}_fuzz PRIVATE -fsanitize=fuzzer)
endfunction()
