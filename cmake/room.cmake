# windrow_room(NAME ABOUT text SOURCES file... PUBLIC lib... PRIVATE lib... NOT_INSTALLED header... PC_REQUIRES package...
#              PC_LIBS flag... OPENS_PLUG_INS)
#
# A room is one library, windrow::NAME, static unless BUILD_SHARED_LIBS is set, with public headers in
# NAME/include/windrow/NAME, those for other rooms in internal/ there, and the rest in NAME/src. Headers of internal/ are
# installed where public or moved ones include them; NOT_INSTALLED names the others. The include path of a room holds its own headers
# and those of the rooms it links, so that a forbidden include does not compile. Every public header is also compiled alone.
# For pkg-config the room is windrow-NAME, whose file describes it by ABOUT and names what PRIVATE links by PC_REQUIRES
# (packages of pkg-config) and PC_LIBS (flags of the linker). With OPENS_PLUG_INS, what links the installed room gets the
# installed plug-ins' folder in its rpath, which dlopen searches.
find_package(Threads REQUIRED)

add_library(windrow_flags INTERFACE)
# Places in messages are told from the top of the tree, wherever that lies.
target_compile_options(windrow_flags INTERFACE -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
target_compile_options(windrow_flags INTERFACE -Wall -Wextra -Wpedantic
                                               $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety;-Wno-unknown-pragmas>
                                               $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>) # false alarms: GCC bug 105651
# Without this option, which -O2 implies, GCC leaves the upper halves of vector registers in use at the end of a kernel.
# Code for SSE, such as that of libm, is then up to 20 times as slow on Intel processors. For all code, since an object
# that uses a precompiled header takes over the options of that header.
target_compile_options(windrow_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-fexpensive-optimizations>)
# Position-independent code of rooms is inlined as other code is.
target_compile_options(windrow_flags INTERFACE -fno-semantic-interposition)
# A compiler that may fuse products and sums does so in some copies of a loop only, so that what an element gives would
# depend on how many elements there are. Training is as fast without; kernels that gain by it ask for it.
target_compile_options(windrow_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
if(WINDROW_SANITIZE)
  # Of UndefinedBehaviorSanitizer's checks, those at each access through a pointer lengthen the build most. AddressSanitizer
  # finds accesses to memory that is not there, but not those that are only misaligned.
  target_compile_options(windrow_flags INTERFACE -fsanitize=${WINDROW_SANITIZE} -fno-omit-frame-pointer
                                                 -fno-sanitize-recover=all
                                                 -fno-sanitize=null,alignment,object-size,vptr)
  target_link_options(windrow_flags INTERFACE -fsanitize=${WINDROW_SANITIZE})
endif()

# CMake compiles sixteen sources of a target as one, in less than half the time, since most sources spend much of it on
# headers of the standard library and on templates; so do, for tests and under sanitizers, precompiled headers. So names in
# the unnamed namespaces of a target must differ, and a source that lacks an include may compile. ccache keeps smaller
# objects longer, and none that uses precompiled headers.
set(join ${PROJECT_IS_TOP_LEVEL}) # other projects decide for themselves
if(CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache")
  set(join OFF)
endif()
option(CMAKE_UNITY_BUILD "Compile sixteen sources as one, and precompile headers for tests and under sanitizers" ${join})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 16)
# Where sources are joined, a local variable may be named as a constant of another source.
target_compile_options(
  windrow_flags INTERFACE $<IF:$<BOOL:${CMAKE_UNITY_BUILD}>,$<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>,-Wshadow>)

# Code that ships goes without precompiled headers: with them GCC inlines other functions, and warns where nothing is
# wrong. The engine, one source with options of its own beside a large one, gains nothing. For Python, rooms are position-
# independent, and tests are not.
function(windrow_use_precompiled target)
  if(NOT CMAKE_UNITY_BUILD OR NOT WINDROW_SANITIZE OR WINDROW_PYTHON OR target STREQUAL windrow_engine)
    return()
  endif()
  if(NOT TARGET windrow_precompiled)
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/empty.cc CONTENT "")
    add_library(windrow_precompiled OBJECT ${PROJECT_BINARY_DIR}/empty.cc)
    target_link_libraries(windrow_precompiled PRIVATE windrow_flags)
    target_compile_features(windrow_precompiled PRIVATE cxx_std_20)
    target_precompile_headers(windrow_precompiled PRIVATE ${PROJECT_SOURCE_DIR}/cmake/standard.h)
  endif()
  target_precompile_headers(${target} REUSE_FROM windrow_precompiled)
endfunction()

function(windrow_room name)
  cmake_parse_arguments(ROOM "OPENS_PLUG_INS" "ABOUT" "SOURCES;PUBLIC;PRIVATE;NOT_INSTALLED;PC_REQUIRES;PC_LIBS" ${ARGN})
  set(target windrow_${name})
  add_library(${target} ${ROOM_SOURCES})
  add_library(windrow::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(
    ${target}
    PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    PRIVATE src)
  target_link_libraries(${target} PUBLIC Threads::Threads ${ROOM_PUBLIC} PRIVATE ${ROOM_PRIVATE}
                                                                                 $<BUILD_INTERFACE:windrow_flags>)
  # So that plug-ins and Python's extensions may link the static libraries. Most builds with sanitizers link programs only.
  if(NOT WINDROW_SANITIZE OR WINDROW_PYTHON)
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  endif()
  set(rpath)
  if(ROOM_OPENS_PLUG_INS)
    target_link_options(${target} INTERFACE
                        $<INSTALL_INTERFACE:LINKER:-rpath,$<INSTALL_PREFIX>/${CMAKE_INSTALL_LIBDIR}/windrow>)
    set(rpath " -Wl,-rpath,\${libdir}/windrow")
  endif()
  windrow_export_symbols(${target})
  windrow_use_precompiled(${target})
  install(TARGETS ${target} EXPORT windrow)
  set(not_installed)
  foreach(header ${ROOM_NOT_INSTALLED})
    list(APPEND not_installed PATTERN internal/${header}.h EXCLUDE)
  endforeach()
  install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} ${not_installed})
  windrow_pkg_config(${name})
  if(WINDROW_TESTS AND NOT WINDROW_SANITIZE)
    windrow_headers_alone(${name})
  endif()
endfunction()

# A shared library shows the symbols of namespace windrow alone, by the linker's version script: the headers need no macro,
# and no copy of another library's template or of spdlog leaves it.
configure_file(${PROJECT_SOURCE_DIR}/cmake/symbols.map.in ${PROJECT_BINARY_DIR}/symbols.map @ONLY)
function(windrow_export_symbols target)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "SHARED_LIBRARY")
    set_target_properties(
      ${target} PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
                           LINK_DEPENDS ${PROJECT_BINARY_DIR}/symbols.map)
    target_link_options(${target} PRIVATE -Wl,--version-script=${PROJECT_BINARY_DIR}/symbols.map)
  endif()
endfunction()

# windrow_plug_in(NAME target): a module of the build's bin folder, windrow_NAME.so, that libraries open when it is first
# used. Installed if it was built.
function(windrow_plug_in name target)
  set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME windrow_${name}
                                             LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
  install(TARGETS ${target} DESTINATION ${CMAKE_INSTALL_LIBDIR}/windrow COMPONENT ${name} OPTIONAL)
  install(CODE "if(NOT EXISTS \"${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/windrow_${name}.so\")
  message(STATUS \"Without windrow_${name}.so, which was not built (target ${target})\")
endif()" COMPONENT ${name})
endfunction()

# Writes and installs windrow-NAME.pc, with the arguments of windrow_room. What static libraries link is needed by every
# program; and paths start from the file, so that the installed tree may be moved.
function(windrow_pkg_config name)
  set(folder ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  string(REGEX REPLACE "[^/]+" .. to_prefix ${folder})
  string(REPLACE windrow:: windrow- requires "${ROOM_PUBLIC}")
  set(libs)
  if(NOT BUILD_SHARED_LIBS)
    list(APPEND requires ${ROOM_PC_REQUIRES})
    list(JOIN ROOM_PC_LIBS " " libs)
  endif()
  list(JOIN requires ", " requires)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/room.pc.in ${PROJECT_BINARY_DIR}/windrow-${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/windrow-${name}.pc DESTINATION ${folder})
endfunction()

# Compiles each public header of a room twice over in a file of its own: it needs no other, and bears repetition.
function(windrow_headers_alone name)
  file(GLOB_RECURSE headers RELATIVE ${CMAKE_CURRENT_SOURCE_DIR}/include CONFIGURE_DEPENDS include/*.h)
  list(FILTER headers EXCLUDE REGEX "/internal/")
  foreach(header ${headers})
    string(REPLACE / _ file ${header})
    set(file ${CMAKE_CURRENT_BINARY_DIR}/alone/${file}.cc)
    file(CONFIGURE OUTPUT ${file} CONTENT "#include \"${header}\"\n#include \"${header}\"\n")
    list(APPEND files ${file})
  endforeach()
  add_library(windrow_${name}_headers_alone OBJECT ${files})
  set_target_properties(windrow_${name}_headers_alone PROPERTIES UNITY_BUILD OFF)
  target_link_libraries(windrow_${name}_headers_alone PRIVATE windrow::${name} windrow_flags)
endfunction()
