# CUDA, cuDNN, NCCL and CUPTI, for libpenstock_cuda.so. Nothing else links them: the program opens
# that library at run time.
#
#   PENSTOCK_WITH_CUDA           AUTO: if all of them are found; ON: an error if any is missing; OFF: never
#   PENSTOCK_CUDA_ARCHITECTURES  compute capabilities to compile code and PTX for, such as 80;89;90;120
#   sets PENSTOCK_CUDA           whether libpenstock_cuda.so is built
#   penstock::nvjpeg             the headers for queue:engine=nvjpeg, from the toolkit or nvjpeg_from_pypi.sh; not
#                                needed for libpenstock_cuda.so
#   penstock::cudnn penstock::nccl penstock::cupti   imported targets
set(PENSTOCK_WITH_CUDA AUTO CACHE STRING "Build libpenstock_cuda.so: AUTO, ON or OFF")
set_property(CACHE PENSTOCK_WITH_CUDA PROPERTY STRINGS AUTO ON OFF)
# Machine code for Hopper. On newer GPUs the driver compiles the PTX.
set(PENSTOCK_CUDA_ARCHITECTURES 90 CACHE STRING "Compute capabilities of libpenstock_cuda.so, such as 80;89;90;120")
set(PENSTOCK_CUDA OFF)

# Fails unless nvcc compiles for each of PENSTOCK_CUDA_ARCHITECTURES. Conversions to bf16 need 8.0 or newer.
function(penstock_check_architectures)
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-code OUTPUT_VARIABLE known COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "sm_[0-9]+" known "${known}")
  list(TRANSFORM known REPLACE "sm_" "")
  list(FILTER known EXCLUDE REGEX "^[0-7][0-9]$")
  foreach(architecture IN LISTS PENSTOCK_CUDA_ARCHITECTURES)
    if(NOT architecture IN_LIST known)
      message(FATAL_ERROR "PENSTOCK_CUDA_ARCHITECTURES has '${architecture}'; ${CMAKE_CUDA_COMPILER} and Penstock's "
                          "kernels have code for ${known}: name one or more of those")
    endif()
  endforeach()
  if(NOT PENSTOCK_CUDA_ARCHITECTURES)
    message(FATAL_ERROR "PENSTOCK_CUDA_ARCHITECTURES is empty; name one or more of ${known}")
  endif()
endfunction()

# penstock_cuda_library(<target> HEADER header NAMES names...): searches the toolkit's folders, or the folders of
# PyPI's packages if PENSTOCK_CUDA_HINTS lists them.
function(penstock_cuda_library target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "HEADER" "NAMES")
  string(REPLACE ":" "_" variable ${target})
  find_path(${variable}_INCLUDE ${arg_HEADER} HINTS ${CUDAToolkit_INCLUDE_DIRS} ${PENSTOCK_CUDA_HINTS}
            PATH_SUFFIXES include ../extras/CUPTI/include)
  find_library(${variable}_LIBRARY NAMES ${arg_NAMES}
               HINTS ${CUDAToolkit_LIBRARY_DIR} ${PENSTOCK_CUDA_HINTS} PATH_SUFFIXES lib ../extras/CUPTI/lib64)
  mark_as_advanced(${variable}_INCLUDE ${variable}_LIBRARY)
  if(${variable}_INCLUDE AND ${variable}_LIBRARY)
    add_library(${target} UNKNOWN IMPORTED GLOBAL)
    set_target_properties(${target} PROPERTIES IMPORTED_LOCATION ${${variable}_LIBRARY}
                          INTERFACE_INCLUDE_DIRECTORIES ${${variable}_INCLUDE})
  endif()
endfunction()

if(PENSTOCK_WITH_CUDA)
  include(CheckLanguage)
  check_language(CUDA)
  set(missing "")
  if(CMAKE_CUDA_COMPILER)
    find_package(CUDAToolkit 13.0)
    find_path(PENSTOCK_NVJPEG_INCLUDE nvjpeg.h PATH_SUFFIXES include
              HINTS ${CUDAToolkit_INCLUDE_DIRS} ${PENSTOCK_CUDA_HINTS} ${PROJECT_BINARY_DIR}/pypi/nvidia/cu${CUDAToolkit_VERSION_MAJOR})
    mark_as_advanced(PENSTOCK_NVJPEG_INCLUDE)
    if(CUDAToolkit_FOUND AND PENSTOCK_NVJPEG_INCLUDE)
      add_library(penstock::nvjpeg INTERFACE IMPORTED GLOBAL)
      set_target_properties(penstock::nvjpeg PROPERTIES INTERFACE_INCLUDE_DIRECTORIES
                            "${PENSTOCK_NVJPEG_INCLUDE};${CUDAToolkit_INCLUDE_DIRS}")
    endif()
    penstock_cuda_library(penstock::cudnn HEADER cudnn.h NAMES cudnn libcudnn.so.9)
    penstock_cuda_library(penstock::nccl HEADER nccl.h NAMES nccl libnccl.so.2)
    penstock_cuda_library(penstock::cupti HEADER cupti.h NAMES cupti libcupti.so.13)
    foreach(target IN ITEMS CUDA::cudart penstock::cudnn penstock::nccl penstock::cupti)
      if(NOT TARGET ${target})
        list(APPEND missing ${target})
      endif()
    endforeach()
  else()
    set(missing nvcc)
  endif()
  if(NOT missing)
    set(PENSTOCK_CUDA ON)
    penstock_check_architectures()
    set(CMAKE_CUDA_ARCHITECTURES ${PENSTOCK_CUDA_ARCHITECTURES})
    list(SORT CMAKE_CUDA_ARCHITECTURES COMPARE NATURAL)
    if(PENSTOCK_CCACHE)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
    endif()
    enable_language(CUDA)
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    set(CMAKE_CUDA_EXTENSIONS OFF)
    if(CMAKE_VERSION VERSION_LESS 3.26)  # older versions do not know that nvcc supports C++20
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    endif()
    message(STATUS "Penstock: libpenstock_cuda.so with CUDA ${CUDAToolkit_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")
  elseif(PENSTOCK_WITH_CUDA STREQUAL AUTO)
    message(STATUS "Penstock: no libpenstock_cuda.so, there is no ${missing}")
  else()
    message(FATAL_ERROR "PENSTOCK_WITH_CUDA is ON, but there is no ${missing}: install the CUDA 13 toolkit, cuDNN 9 and NCCL")
  endif()
endif()
