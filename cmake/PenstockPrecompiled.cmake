# What keeps compile times low. Without precompiled headers, parsing the standard library took two thirds of the time of a file.
#
#   penstock_optimise(<target> <level> <sources>...)   in a release, compiles these with -O1 because they only prepare, or with -O3
#   penstock_precompile(<target>)   compiles a library with the widest headers of the standard library and fmt
#
# The preset `dev` builds without them (CMAKE_DISABLE_PRECOMPILE_HEADERS), so it finds missing #includes. The test
# `headers_alone` finds most of them in every build.

# GCC 14 uses a precompiled header only if these settings, which -O3 makes and -O1 does not, are the same. GCC 12 lacks one of them.
include(CheckCXXCompilerFlag)
set(PENSTOCK_O1 -O1)
check_cxx_compiler_flag("-munroll-only-small-loops -mvzeroupper" PENSTOCK_HAS_X86_SETTINGS)
if(PENSTOCK_HAS_X86_SETTINGS)
  list(APPEND PENSTOCK_O1 -munroll-only-small-loops -mvzeroupper)
endif()

function(penstock_optimise target level)
  if(level STREQUAL "-O1")
    set(level ${PENSTOCK_O1})
  endif()
  set_source_files_properties(${ARGN} TARGET_DIRECTORY ${target} PROPERTIES COMPILE_OPTIONS "$<$<CONFIG:Release>:${level}>")
endfunction()

set(PENSTOCK_PRECOMPILED
  <algorithm> <array> <atomic> <chrono> <cmath> <condition_variable> <cstdint> <cstdio> <cstring> <exception> <filesystem>
  <functional> <limits> <map> <memory> <mutex> <numeric> <optional> <set> <span> <sstream> <stop_token> <string>
  <string_view> <thread> <utility> <variant> <vector> <fmt/format.h>)

file(CONFIGURE OUTPUT generated/precompiled.cpp CONTENT "// Generated.\n")

# penstock_precompile_own(<target> <headers>...): gives the target precompiled headers that no other target uses. ccache
# compares them by the file .sum, because gcc never writes the same precompiled header twice.
function(penstock_precompile_own target)
  target_precompile_headers(${target} PRIVATE ${ARGN})
  file(CONFIGURE OUTPUT CMakeFiles/${target}.dir/cmake_pch.hxx.gch.sum
       CONTENT "${ARGN} ${CMAKE_CXX_COMPILER_VERSION} fmt ${fmt_VERSION} GTest ${GTest_VERSION}\n")
endfunction()

# penstock_precompiled_headers(<target> <headers>...): an object library that contains only its precompiled headers.
function(penstock_precompiled_headers target)
  add_library(${target} OBJECT EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/generated/precompiled.cpp)
  target_link_libraries(${target} PRIVATE penstock_options fmt::fmt)
  penstock_precompile_own(${target} ${ARGN})
endfunction()

penstock_precompiled_headers(penstock_precompiled ${PENSTOCK_PRECOMPILED})
if(BUILD_SHARED_LIBS)
  set_target_properties(penstock_precompiled PROPERTIES POSITION_INDEPENDENT_CODE ON)
endif()

function(penstock_precompile target)
  target_precompile_headers(${target} REUSE_FROM penstock_precompiled)
endfunction()
