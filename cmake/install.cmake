# What `find_package(windrow)` finds after `cmake --install`, and the package that `cpack` makes.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/windrow)
install(EXPORT windrow NAMESPACE windrow:: DESTINATION ${package_dir} FILE windrowTargets.cmake)
set(WINDROW_SHARED OFF)
if(BUILD_SHARED_LIBS)
  set(WINDROW_SHARED ON)
endif()
configure_package_config_file(cmake/windrowConfig.cmake.in ${PROJECT_BINARY_DIR}/windrowConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/windrowConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/windrowConfig.cmake ${PROJECT_BINARY_DIR}/windrowConfigVersion.cmake
              cmake/FindoneDNN.cmake
        DESTINATION ${package_dir})
# Headers that have moved stay for one release where a program could include them: each includes the new one.
file(REMOVE_RECURSE ${PROJECT_BINARY_DIR}/moved) # a header may have moved back
file(STRINGS ${PROJECT_SOURCE_DIR}/cmake/moved_headers.txt moved)
foreach(line ${moved})
  string(REPLACE " " ";" pair "${line}")
  list(GET pair 0 old)
  list(GET pair 1 new)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/moved/windrow/${old}.h
       CONTENT "// Deprecated: include windrow/${new}.h\n#pragma once\n#include \"windrow/${new}.h\"\n")
endforeach()
install(DIRECTORY ${PROJECT_BINARY_DIR}/moved/windrow DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
windrow_write_bill(${PROJECT_BINARY_DIR}/windrow.spdx.json)
install(FILES ${PROJECT_BINARY_DIR}/windrow.spdx.json DESTINATION ${CMAKE_INSTALL_DATADIR}/windrow)
install(FILES LICENSE README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md VERSIONING.md
        DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(PROGRAMS scripts/timeline DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME windrow-timeline)
install(DIRECTORY perf/results DESTINATION ${CMAKE_INSTALL_DOCDIR}/perf) # pages link to it
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} PATTERN site EXCLUDE)

if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()
# A package for Debian and Ubuntu, of what was built. The plug-ins for CUDA and NCCL stay out: the packages that their
# libraries come from differ from machine to machine.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_VENDOR "the authors of Windrow")
set(CPACK_PACKAGE_CONTACT "the authors of Windrow <windrow@localhost>")
set(CPACK_COMPONENTS_ALL Unspecified mpi)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON) # by dpkg-shlibdeps, of package dpkg-dev, and file
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "g++, libtbb-dev, libdnnl-dev, libhwy-dev") # to link the libraries
include(CPack)
