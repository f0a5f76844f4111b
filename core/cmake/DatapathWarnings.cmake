# SPDX-License-Identifier: Apache-2.0
# datapath_strict_warnings(target): the warnings that all C++ of this project is held to.
# Installed with the CMake package, so that downstream libraries can hold themselves to the same.

function(datapath_strict_warnings target)
  set(host_flags -Wall -Wextra -Wconversion -Wsign-conversion -Wshadow -Werror)
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:C,CXX>:${host_flags}>")
endfunction()
