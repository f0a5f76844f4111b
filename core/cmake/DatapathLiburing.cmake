# SPDX-License-Identifier: Apache-2.0
# Finds a static, position-independent liburing >= 2.3; sets DATAPATH_HAVE_LIBURING (0 or 1) and,
# when it is 1, the imported target datapath_liburing. Needs no pkg-config.
include(CheckCXXSourceCompiles)

set(DATAPATH_HAVE_LIBURING 0)
set(liburing_reason "")

if(DATAPATH_LIBURING STREQUAL "off")
  set(liburing_reason "DATAPATH_LIBURING=off")
else()
  find_path(LIBURING_INCLUDE_DIR liburing.h)
  find_library(LIBURING_LIBRARY NAMES liburing.a)
  if(NOT LIBURING_INCLUDE_DIR OR NOT LIBURING_LIBRARY)
    set(liburing_reason "liburing.h or liburing.a was not found")
  else()
    # Both names are new in 2.3. Linking an executable as PIE shows that the archive can go into a
    # shared library; reading a version number would show neither.
    set(CMAKE_REQUIRED_INCLUDES "${LIBURING_INCLUDE_DIR}")
    set(CMAKE_REQUIRED_LIBRARIES "${LIBURING_LIBRARY}")
    set(CMAKE_REQUIRED_FLAGS "-fPIE")
    set(CMAKE_REQUIRED_LINK_OPTIONS "-pie")
    check_cxx_source_compiles(
      "#include <liburing.h>
       int main() {
         io_uring ring{};
         io_uring_sync_cancel_reg cancel{};
         int setup = io_uring_queue_init(1, &ring, IORING_SETUP_DEFER_TASKRUN);
         return setup + io_uring_register_sync_cancel(&ring, &cancel);
       }"
      LIBURING_USABLE)
    unset(CMAKE_REQUIRED_INCLUDES)
    unset(CMAKE_REQUIRED_LIBRARIES)
    unset(CMAKE_REQUIRED_FLAGS)
    unset(CMAKE_REQUIRED_LINK_OPTIONS)
    if(LIBURING_USABLE)
      set(DATAPATH_HAVE_LIBURING 1)
    else()
      set(liburing_reason "${LIBURING_LIBRARY} is older than 2.3 or not position independent")
    endif()
  endif()
endif()

if(DATAPATH_HAVE_LIBURING)
  message(STATUS "datapath: io_uring backend built in, from ${LIBURING_LIBRARY}")
  add_library(datapath_liburing STATIC IMPORTED)
  set_target_properties(
    datapath_liburing
    PROPERTIES IMPORTED_LOCATION "${LIBURING_LIBRARY}"
               INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${LIBURING_INCLUDE_DIR}")
elseif(DATAPATH_LIBURING STREQUAL "on")
  message(FATAL_ERROR "datapath: DATAPATH_LIBURING=on, but ${liburing_reason}.\n"
                      "Install liburing >= 2.3 with its static library (Debian: liburing-dev).")
else()
  message(WARNING "datapath: NO io_uring BACKEND. ${liburing_reason}.\n"
                  "Files will be read and written by threads only, which is slower for small "
                  "requests. Install liburing >= 2.3 with its static library "
                  "(Debian, Ubuntu: apt-get install liburing-dev) and build again.")
endif()
