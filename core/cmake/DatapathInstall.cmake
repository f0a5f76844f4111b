# SPDX-License-Identifier: Apache-2.0
# Install rules. The prefix is the Python package itself (site-packages/datapath_core), so that one
# tree serves `import datapath_core` and `find_package(datapath)`.
include(CMakePackageConfigHelpers)

set(cmake_dir lib/cmake/datapath)

install(TARGETS datapath EXPORT datapath-targets LIBRARY DESTINATION . COMPONENT runtime)
install(DIRECTORY include/datapath DESTINATION include COMPONENT development
        FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(EXPORT datapath-targets NAMESPACE datapath:: DESTINATION ${cmake_dir}
        COMPONENT development)
configure_package_config_file(
  cmake/datapath-config.cmake.in "${PROJECT_BINARY_DIR}/datapath-config.cmake"
  INSTALL_DESTINATION ${cmake_dir} NO_SET_AND_CHECK_MACRO)
# While the major version is 0, a minor version may change the interface.
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/datapath-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/datapath-config.cmake"
              "${PROJECT_BINARY_DIR}/datapath-config-version.cmake"
              cmake/DatapathWarnings.cmake
        DESTINATION ${cmake_dir} COMPONENT development)
if(TARGET _core)
  install(TARGETS _core LIBRARY DESTINATION . COMPONENT python)
endif()
