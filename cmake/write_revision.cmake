# Writes HEADER with the git revision of the folder SOURCE: "unknown" if SOURCE is not a git work tree itself, with
# "-dirty" appended if files differ from the revision.
cmake_minimum_required(VERSION 3.25)
set(revision unknown)
find_program(git git)
if(git)
  execute_process(COMMAND ${git} rev-parse --show-toplevel WORKING_DIRECTORY ${SOURCE}
                  OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  file(REAL_PATH "${SOURCE}" source)
  if(top STREQUAL source)
    execute_process(COMMAND ${git} describe --always --dirty --abbrev=12 WORKING_DIRECTORY ${SOURCE}
                    OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(described)
      set(revision "${described}")
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT "${HEADER}" CONTENT "// Generated.\n#pragma once\n#define PENSTOCK_REVISION \"@revision@\"\n" @ONLY)
