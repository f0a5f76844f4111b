# SPDX-License-Identifier: Apache-2.0
# Where nvcc is when it is not on PATH, and which GPUs there are to compile for.

# Sets the environment variable CUDACXX, where it is not set, to the nvcc that is found.
function(pytorch_direct_find_nvcc)
  if(DEFINED ENV{CUDACXX})
    return()
  endif()
  # CUDA's installer leaves its bin folder out of PATH.
  find_program(nvcc nvcc NO_CACHE
               PATHS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda /opt/cuda PATH_SUFFIXES bin)
  if(nvcc)
    set(ENV{CUDACXX} "${nvcc}")
  endif()
endfunction()

# Sets `result` to the architectures of this machine's GPUs; without any to 90.
function(pytorch_direct_gpu_architectures result)
  set(found "")
  find_program(nvidia_smi nvidia-smi NO_CACHE)
  if(nvidia_smi)
    execute_process(COMMAND "${nvidia_smi}" --query-gpu=compute_cap --format=csv,noheader
                    OUTPUT_VARIABLE found ERROR_QUIET)
  endif()
  string(REGEX MATCHALL "[0-9]+\\.[0-9]" found "${found}")
  list(TRANSFORM found REPLACE "\\." "")
  list(REMOVE_DUPLICATES found)
  if(NOT found)
    set(found 90)
  endif()
  set(${result} "${found}" PARENT_SCOPE)
endfunction()
