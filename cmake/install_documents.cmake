# Runs when Penstock is installed. The program writes its completions for bash and zsh. If help2man is installed, it makes
# man pages of the help texts. Documents that the program cannot produce are left out.
#   penstock_program                  the program
#   penstock_folder                   the folder in which the files are made
#   penstock_data, penstock_manuals   the folders to install them in: below the prefix, or absolute paths
cmake_policy(VERSION 3.25)

# penstock_says(<variable> <arguments>...): sets the variable to the program's output, or to nothing if the program fails.
function(penstock_says variable)
  execute_process(COMMAND ${penstock_program} ${ARGN} OUTPUT_VARIABLE text RESULT_VARIABLE problem ERROR_QUIET)
  if(problem)
    set(text "")
  endif()
  set(${variable} "${text}" PARENT_SCOPE)
endfunction()

# penstock_install_document(<file> <folder>)
function(penstock_install_document file destination)
  cmake_path(ABSOLUTE_PATH destination BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX})
  file(INSTALL DESTINATION ${destination} TYPE FILE FILES ${file})
endfunction()

# penstock_install_pages(<summary> [verb...]): installs the page of the program or of a verb, and the pages of the verbs
# that its help lists instead of flags.
function(penstock_install_pages summary)
  list(JOIN ARGN " " command)
  string(STRIP "${penstock_program} ${command}" command)
  set(page penstock ${ARGN})
  list(JOIN page "-" page)
  penstock_says(version --version)
  string(REGEX MATCH "[0-9][^ \n]*" version "${version}")
  set(option --help-all)
  penstock_says(help ${ARGN} ${option})
  if(NOT help)
    set(option --help)
    penstock_says(help ${ARGN} ${option})
  endif()
  if(NOT help)
    return()  # this line of the help names no verb
  endif()
  execute_process(COMMAND ${help2man} --no-info --name=${summary} --help-option=${option} --version-string=${version}
                          --source=Penstock ${command}
                  OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
  string(TOUPPER ${page} title)
  string(REGEX REPLACE "\n\\.TH PENSTOCK " "\n.TH ${title} " text "${text}")
  string(REGEX REPLACE "(\n\\.SH NAME\n)[^\\]*" "\\1${page} " text "${text}")  # one word, for apropos
  file(WRITE ${penstock_folder}/${page}.1 "${text}")
  penstock_install_document(${penstock_folder}/${page}.1 ${penstock_manuals}/man1)
  if(ARGN AND help MATCHES "\n +-")
    return()
  endif()
  string(REGEX REPLACE "[][;]" " " help "${help}")  # these characters would end list elements
  string(REGEX MATCHALL "\n  [a-z][a-z-]* [^\n]+" lines "${help}")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "^\n  ([a-z-]+) +(.+)" line "${line}")
    penstock_install_pages("${CMAKE_MATCH_2}" ${ARGN} ${CMAKE_MATCH_1})
  endforeach()
endfunction()

file(REMOVE_RECURSE ${penstock_folder})
file(MAKE_DIRECTORY ${penstock_folder})
penstock_says(bash completion bash)
penstock_says(zsh completion zsh)
if(bash)
  file(WRITE ${penstock_folder}/penstock "${bash}")
  penstock_install_document(${penstock_folder}/penstock ${penstock_data}/bash-completion/completions)
endif()
if(zsh)
  set(place site-functions)
  if(CMAKE_INSTALL_PREFIX MATCHES "/usr$" AND EXISTS /etc/debian_version)
    set(place vendor-completions)  # Debian's folder, for packages
  endif()
  file(WRITE ${penstock_folder}/_penstock "${zsh}")
  penstock_install_document(${penstock_folder}/_penstock ${penstock_data}/zsh/${place})
endif()

find_program(help2man help2man NO_CACHE)
if(help2man)
  penstock_install_pages("measures the input pipelines of deep-learning training")
else()
  message(STATUS "Penstock: no man pages, since there is no help2man (package help2man)")
endif()
