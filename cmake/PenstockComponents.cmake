# Components: each is one file and one line, and is listed by name in a generated constant table.
#
#   penstock_component(<kind> <stem> [NAME name] [ENTRIES entries...] [SOURCES files...]
#                      [NEEDS targets...] [PACKAGE deb] [SET set])
#     compiles <stem>.cpp, which defines `extern constinit const <Kind>Entry <stem>_<kind>`. With ENTRIES
#     it defines one such constant `<entry>_<kind>` for each entry. The namespace is penstock, or
#     penstock::${PENSTOCK_NAMESPACE} if the list sets that. If a target of NEEDS is missing, the
#     components are left out; their names stay known, with the reason.
#   penstock_absent(<kind> <name> <reason>)
#     a name that users may type and that this program does not offer.
#   penstock_program(<target> MAIN file [SETS sets...])
#     an executable with the components of the sets; `builtin` is always among them.
#
# penstock_component_kind() declares each kind once. Sources of the set `builtin` belong to the
# folder's library; sources of other sets belong to the programs that use them.

function(penstock_component_kind kind type header library title)
  set_property(GLOBAL APPEND PROPERTY PENSTOCK_KINDS ${kind})
  set_property(GLOBAL PROPERTY PENSTOCK_KIND_${kind}_TYPE ${type})
  set_property(GLOBAL PROPERTY PENSTOCK_KIND_${kind}_HEADER ${header})
  set_property(GLOBAL PROPERTY PENSTOCK_KIND_${kind}_LIBRARY ${library})
  set_property(GLOBAL PROPERTY PENSTOCK_KIND_${kind}_TITLE "${title}")
endfunction()

function(penstock_absent kind name reason)
  cmake_parse_arguments(PARSE_ARGV 3 arg "" "SET" "")
  if(NOT arg_SET)
    set(arg_SET builtin)
  endif()
  set_property(GLOBAL APPEND_STRING PROPERTY PENSTOCK_ABSENT_${kind}_${arg_SET}
               "    {\"${name}\", \"${reason}\"},\n")
endfunction()

function(penstock_component kind stem)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "NAME;SET;PACKAGE" "ENTRIES;SOURCES;NEEDS")
  if(NOT arg_ENTRIES)
    set(arg_ENTRIES ${stem})
  endif()
  if(NOT arg_NAME)
    string(REPLACE "_" "-" arg_NAME "${arg_ENTRIES}")
  endif()
  if(NOT arg_SET)
    set(arg_SET builtin)
  endif()
  if(NOT arg_SOURCES)
    set(arg_SOURCES ${stem}.cpp)
  endif()
  foreach(target IN LISTS arg_NEEDS)
    if(NOT TARGET ${target})
      foreach(name IN LISTS arg_NAME)
        penstock_absent(${kind} ${name} "built without ${target}: install ${arg_PACKAGE} and configure again"
                        SET ${arg_SET})
      endforeach()
      message(STATUS "Penstock: ${kind} ${arg_NAME} left out, no ${target} (package ${arg_PACKAGE})")
      return()
    endif()
  endforeach()
  list(TRANSFORM arg_SOURCES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  if(arg_SET STREQUAL builtin)
    get_property(library GLOBAL PROPERTY PENSTOCK_KIND_${kind}_LIBRARY)
    target_sources(${library} PRIVATE ${arg_SOURCES})
    target_link_libraries(${library} PRIVATE ${arg_NEEDS})
  else()
    set_property(GLOBAL APPEND PROPERTY PENSTOCK_SOURCES_${arg_SET} ${arg_SOURCES})
    set_property(GLOBAL APPEND PROPERTY PENSTOCK_NEEDS_${arg_SET} ${arg_NEEDS})
  endif()
  list(TRANSFORM arg_ENTRIES APPEND _${kind})
  if(PENSTOCK_NAMESPACE)
    list(TRANSFORM arg_ENTRIES PREPEND ${PENSTOCK_NAMESPACE}::)
  endif()
  set_property(GLOBAL APPEND PROPERTY PENSTOCK_ENTRIES_${kind}_${arg_SET} ${arg_ENTRIES})
endfunction()

# penstock_split(<name>): `remote::x` gives scope penstock::remote and stem x; `x` gives penstock and x.
function(penstock_split name)
  string(REGEX MATCH "^(.*)::(.*)$" found ${name})
  if(found)
    set(scope penstock::${CMAKE_MATCH_1} PARENT_SCOPE)
    set(stem ${CMAKE_MATCH_2} PARENT_SCOPE)
  else()
    set(scope penstock PARENT_SCOPE)
    set(stem ${name} PARENT_SCOPE)
  endif()
endfunction()

# penstock_add_tables(<target> [sets...] [KINDS kinds...]): writes the tables of the sets and adds them, with the sets' sources, to
# `target`. KINDS: only tables of these kinds; `target` then links what they need itself.
function(penstock_add_tables target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" KINDS)
  set(text "// Generated from the component lists.\n")
  set(body "")
  get_property(kinds GLOBAL PROPERTY PENSTOCK_KINDS)
  if(arg_KINDS)
    set(kinds ${arg_KINDS})
  endif()
  foreach(kind IN LISTS kinds)
    get_property(type GLOBAL PROPERTY PENSTOCK_KIND_${kind}_TYPE)
    get_property(header GLOBAL PROPERTY PENSTOCK_KIND_${kind}_HEADER)
    get_property(title GLOBAL PROPERTY PENSTOCK_KIND_${kind}_TITLE)
    string(APPEND text "#include \"${header}\"\n")
    set(declarations "")
    set(addresses "")
    set(absent "")
    foreach(set IN ITEMS builtin ${arg_UNPARSED_ARGUMENTS})
      get_property(entries GLOBAL PROPERTY PENSTOCK_ENTRIES_${kind}_${set})
      foreach(entry IN LISTS entries)
        penstock_split(${entry})
        string(APPEND declarations "namespace ${scope} { extern constinit const penstock::${type} ${stem}; }\n")
        string(APPEND addresses "    &penstock::${entry},\n")
      endforeach()
      get_property(names GLOBAL PROPERTY PENSTOCK_ABSENT_${kind}_${set})
      string(APPEND absent "${names}")
    endforeach()
    penstock_split(${type})
    string(APPEND body "${declarations}"
      "namespace ${scope} {\nconst Table<${stem}>& ${kind}_table() {\n"
      "  static constexpr std::array entries = std::to_array<const ${stem}*>({\n${addresses}    nullptr,\n  });\n"
      "  static constexpr std::array absent = std::to_array<AbsentEntry>({\n${absent}    {},\n  });\n"
      "  static constexpr Table<${stem}> table{\n"
      "      \"${title}\", std::span(entries).first(entries.size() - 1),\n"
      "      std::span(absent).first(absent.size() - 1)};\n"
      "  return table;\n}\n}  // namespace ${scope}\n\n")
  endforeach()
  set(file ${PROJECT_BINARY_DIR}/generated/${target}_tables.cpp)
  file(CONFIGURE OUTPUT ${file}
       CONTENT "${text}\n#include <array>\n#include <span>\n\n${body}"
       @ONLY)
  target_sources(${target} PRIVATE ${file})
  foreach(set IN LISTS arg_UNPARSED_ARGUMENTS)
    get_property(sources GLOBAL PROPERTY PENSTOCK_SOURCES_${set})
    get_property(needs GLOBAL PROPERTY PENSTOCK_NEEDS_${set})
    target_sources(${target} PRIVATE ${sources})
    target_link_libraries(${target} PRIVATE ${needs})
  endforeach()
  if(NOT arg_KINDS)
    target_link_libraries(${target} PRIVATE penstock::bench)
  endif()
endfunction()

function(penstock_program target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "MAIN" "SETS")
  add_executable(${target} ${arg_MAIN})
  penstock_add_tables(${target} ${arg_SETS})
endfunction()
