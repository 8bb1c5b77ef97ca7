# Build information that every result records: CMake writes generated/penstock_build.h when it runs. Every build checks
# generated/penstock_revision.h and rewrites it only if the revision has changed.

find_package(PkgConfig QUIET)
foreach(package IN ITEMS libjpeg libzmq)
  set(version_${package} "")
  if(PkgConfig_FOUND)
    pkg_check_modules(PENSTOCK_${package} QUIET ${package})
    set(version_${package} "${PENSTOCK_${package}_VERSION}")
  endif()
endforeach()

set(PENSTOCK_LIBRARIES "")
foreach(library IN ITEMS
        "fmt ${fmt_VERSION}" "CLI11 ${CLI11_VERSION}"
        "nlohmann_json ${nlohmann_json_VERSION}" "TBB ${TBB_VERSION}" "libpng ${PNG_VERSION_STRING}"
        "libjpeg-turbo ${version_libjpeg}" "libzmq ${version_libzmq}" "cppzmq ${cppzmq_VERSION}")
  if(library MATCHES "^[^ ]+ .")
    string(APPEND PENSTOCK_LIBRARIES "${library};")
  endif()
endforeach()

string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
set(compiler_flags "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${build_type}} -std=c++20")
if(PENSTOCK_SANITIZE)
  string(APPEND compiler_flags " -fsanitize=${PENSTOCK_SANITIZE}")
endif()
string(STRIP "${compiler_flags}" compiler_flags)
file(CONFIGURE OUTPUT generated/penstock_build.h CONTENT [[// Generated.
#pragma once
#define PENSTOCK_BUILD_VERSION "@PROJECT_VERSION@"
#define PENSTOCK_BUILD_COMPILER "@CMAKE_CXX_COMPILER_ID@ @CMAKE_CXX_COMPILER_VERSION@"
#define PENSTOCK_BUILD_FLAGS "@compiler_flags@"
#define PENSTOCK_BUILD_TYPE "@CMAKE_BUILD_TYPE@"
#define PENSTOCK_BUILD_LIBRARIES "@PENSTOCK_LIBRARIES@"
]] @ONLY)

add_custom_target(penstock_revision
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR}
          -DHEADER=${PROJECT_BINARY_DIR}/generated/penstock_revision.h
          -P ${CMAKE_CURRENT_LIST_DIR}/write_revision.cmake
  BYPRODUCTS ${PROJECT_BINARY_DIR}/generated/penstock_revision.h
  COMMENT "Looking up the revision" VERBATIM)
