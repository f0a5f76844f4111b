# SPDX-License-Identifier: Apache-2.0
# datapath_sanitize(target): builds and links a target with the sanitizers of DATAPATH_SANITIZE.

function(datapath_sanitize target)
  if(NOT DATAPATH_SANITIZE)
    return()
  endif()
  list(JOIN DATAPATH_SANITIZE "," names)
  set(flags -fsanitize=${names} -fno-omit-frame-pointer)
  if("undefined" IN_LIST DATAPATH_SANITIZE)
    # A finding has to fail the test that met it, not only print.
    list(APPEND flags -fno-sanitize-recover=undefined)
  endif()
  target_compile_options(${target} PRIVATE ${flags})
  target_link_options(${target} PUBLIC ${flags})
endfunction()
