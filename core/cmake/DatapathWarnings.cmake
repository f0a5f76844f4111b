# SPDX-License-Identifier: Apache-2.0
# datapath_strict_warnings(target): the warnings that all C++ of this project is held to.
# Installed with the CMake package, so that downstream libraries can hold themselves to the same.
# They are errors in development only: another compiler's new warning must not stop a user's installation.

option(DATAPATH_WARNINGS_AS_ERRORS "Stop at a compiler warning" OFF)

function(datapath_strict_warnings target)
  set(host_flags -Wall -Wextra -Wconversion -Wsign-conversion -Wshadow)
  if(DATAPATH_WARNINGS_AS_ERRORS)
    list(APPEND host_flags -Werror)
  endif()
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:C,CXX>:${host_flags}>")
endfunction()
