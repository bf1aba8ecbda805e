# What `find_package(windrow)` finds after `cmake --install`.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/windrow)
install(EXPORT windrow NAMESPACE windrow:: DESTINATION ${package_dir} FILE windrowTargets.cmake)
configure_package_config_file(cmake/windrowConfig.cmake.in ${PROJECT_BINARY_DIR}/windrowConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/windrowConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/windrowConfig.cmake ${PROJECT_BINARY_DIR}/windrowConfigVersion.cmake
              cmake/FindoneDNN.cmake
        DESTINATION ${package_dir})
