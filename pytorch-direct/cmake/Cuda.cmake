# SPDX-License-Identifier: Apache-2.0
# Looks for a CUDA compiler; sets PYTORCH_DIRECT_HAVE_CUDA (0 or 1) and the architectures.
include(CheckLanguage)
include("${CMAKE_CURRENT_LIST_DIR}/CudaOfThisMachine.cmake")

set(PYTORCH_DIRECT_HAVE_CUDA 0)
if(NOT PYTORCH_DIRECT_CUDA STREQUAL "off")
  if(NOT CMAKE_CUDA_COMPILER)
    # What an earlier run did not find may be there now.
    unset(CMAKE_CUDA_COMPILER CACHE)
    pytorch_direct_find_nvcc()
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(PYTORCH_DIRECT_HAVE_CUDA 1)
  elseif(PYTORCH_DIRECT_CUDA STREQUAL "on")
    message(FATAL_ERROR "pytorch-direct: PYTORCH_DIRECT_CUDA=on, but no CUDA compiler was found.\n"
                        "Put nvcc on PATH, or set CUDACXX to its path.")
  else()
    message(WARNING "pytorch-direct: NO CUDA KERNELS, no CUDA compiler was found. Everything will "
                    "run on the CPU. Put nvcc on PATH, or set CUDACXX to its path, and build again.")
  endif()
endif()

if(PYTORCH_DIRECT_HAVE_CUDA)
  if(PYTORCH_DIRECT_ARCHS STREQUAL "all")
    execute_process(COMMAND "${CMAKE_CUDA_COMPILER}" --list-gpu-code OUTPUT_VARIABLE codes
                    COMMAND_ERROR_IS_FATAL ANY)
    string(REGEX MATCHALL "sm_[0-9]+" codes "${codes}")
    list(TRANSFORM codes REPLACE "sm_" "")
    list(SORT codes COMPARE NATURAL)
    list(REMOVE_DUPLICATES codes)
    set(CMAKE_CUDA_ARCHITECTURES "")
    foreach(code IN LISTS codes)
      if(code GREATER_EQUAL 80)
        list(APPEND CMAKE_CUDA_ARCHITECTURES "${code}-real")
        set(newest "${code}")
      endif()
    endforeach()
    # PTX of the oldest runs on whatever lies between and after the listed ones.
    list(APPEND CMAKE_CUDA_ARCHITECTURES "80-virtual" "${newest}-virtual")
  elseif(PYTORCH_DIRECT_ARCHS STREQUAL "auto")
    pytorch_direct_gpu_architectures(CMAKE_CUDA_ARCHITECTURES)
  else()
    set(CMAKE_CUDA_ARCHITECTURES "${PYTORCH_DIRECT_ARCHS}")
  endif()
  enable_language(CUDA)
  message(STATUS "pytorch-direct: CUDA kernels for ${CMAKE_CUDA_ARCHITECTURES}, "
                 "nvcc ${CMAKE_CUDA_COMPILER_VERSION}")
endif()

function(pytorch_direct_configure_cuda target)
  set_target_properties(${target} PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON
                                             CUDA_RUNTIME_LIBRARY Static
                                             CUDA_VISIBILITY_PRESET hidden)
  target_compile_options(
    ${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Wall,-Wextra;--threads=2>")
endfunction()
