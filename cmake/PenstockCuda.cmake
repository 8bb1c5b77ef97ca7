# CUDA, cuDNN, NCCL and CUPTI, for libpenstock_cuda.so. Nothing else links them: the program opens
# that library at run time.
#
#   PENSTOCK_WITH_CUDA  AUTO: where all of them are found; ON: an error where not; OFF: never
#   sets PENSTOCK_CUDA  whether libpenstock_cuda.so is built
#   penstock::cudnn penstock::nccl penstock::cupti   imported targets
set(PENSTOCK_WITH_CUDA AUTO CACHE STRING "Build libpenstock_cuda.so: AUTO, ON or OFF")
set_property(CACHE PENSTOCK_WITH_CUDA PROPERTY STRINGS AUTO ON OFF)
set(PENSTOCK_CUDA OFF)

# penstock_cuda_library(<target> HEADER header NAMES names...): in the toolkit's folders, or in those
# of PyPI's packages when PENSTOCK_CUDA_HINTS lists them.
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
    # Real code for Hopper; the driver compiles the PTX for what comes after it.
    set(CMAKE_CUDA_ARCHITECTURES 90)
    if(PENSTOCK_CCACHE)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
    endif()
    enable_language(CUDA)
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    set(CMAKE_CUDA_EXTENSIONS OFF)
    if(CMAKE_VERSION VERSION_LESS 3.26)  # which does not know that nvcc has C++20
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    endif()
    message(STATUS "Penstock: libpenstock_cuda.so with CUDA ${CUDAToolkit_VERSION}")
  elseif(PENSTOCK_WITH_CUDA STREQUAL AUTO)
    message(STATUS "Penstock: no libpenstock_cuda.so, there is no ${missing}")
  else()
    message(FATAL_ERROR "PENSTOCK_WITH_CUDA is ON, but there is no ${missing}: install the CUDA 13 toolkit, cuDNN 9 and NCCL")
  endif()
endif()
