# windrow_room(NAME ABOUT text SOURCES file... PUBLIC lib... PRIVATE lib... PC_REQUIRES package... PC_LIBS flag...)
#
# A room is one library, windrow::NAME, with public headers in NAME/include and the rest in NAME/src. Its include path
# holds its own headers and those of the rooms it links, so that a forbidden include does not compile. Every public
# header is also compiled alone. For pkg-config the room is windrow-NAME, whose file describes it by ABOUT and names
# what PRIVATE links by PC_REQUIRES (packages of pkg-config) and PC_LIBS (flags of the linker).
find_package(Threads REQUIRED)

option(WINDROW_JOIN_ROOMS "Compile the sources of rooms together, which is quick; the code is not that of Release" OFF)

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
if(WINDROW_SANITIZE)
  # Of UndefinedBehaviorSanitizer's checks, those at each access through a pointer lengthen the build most. AddressSanitizer
  # finds accesses to memory that is not there, but not those that are only misaligned.
  target_compile_options(windrow_flags INTERFACE -fsanitize=${WINDROW_SANITIZE} -fno-omit-frame-pointer
                                                 -fno-sanitize-recover=all
                                                 -fno-sanitize=null,alignment,object-size,vptr
                                                 $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  target_link_options(windrow_flags INTERFACE -fsanitize=${WINDROW_SANITIZE})
elseif(NOT WINDROW_JOIN_ROOMS)
  target_compile_options(windrow_flags INTERFACE -Wshadow)
endif()

# Most sources spend much of their compilation on headers of the standard library. ccache cannot keep objects that use
# precompiled headers.
set(precompile ON)
if(CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache")
  set(precompile OFF)
endif()
option(WINDROW_PRECOMPILE "Precompile headers for tests, and under sanitizers for all code" ${precompile})

# Code that ships goes without precompiled headers: with them GCC inlines other functions, and warns where nothing is
# wrong. A source of a room that lacks an include is found by that build. The engine, one source with options of its own
# beside a large one, gains nothing.
function(windrow_use_precompiled target)
  if(NOT WINDROW_PRECOMPILE OR NOT WINDROW_SANITIZE OR target STREQUAL windrow_engine)
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

# Sixteen sources of a target are compiled as one, which takes less than half the time: those of tests where headers are
# precompiled, since no cache keeps their objects then; those of rooms under sanitizers and for the analysis, but not in a
# Release build, which would inline other functions. So names in the unnamed namespaces of a target must differ, and some
# warnings, which the Release build gives of rooms, would be wrong.
function(windrow_join_sources target)
  if(WINDROW_SANITIZE OR WINDROW_JOIN_ROOMS OR (WINDROW_PRECOMPILE AND NOT "ROOM" IN_LIST ARGN))
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 16)
  endif()
endfunction()

function(windrow_room name)
  cmake_parse_arguments(ROOM "" "ABOUT" "SOURCES;PUBLIC;PRIVATE;PC_REQUIRES;PC_LIBS" ${ARGN})
  set(target windrow_${name})
  add_library(${target} STATIC ${ROOM_SOURCES})
  add_library(windrow::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(
    ${target}
    PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    PRIVATE src)
  target_link_libraries(${target} PUBLIC Threads::Threads ${ROOM_PUBLIC} PRIVATE ${ROOM_PRIVATE}
                                                                                 $<BUILD_INTERFACE:windrow_flags>)
  windrow_use_precompiled(${target})
  windrow_join_sources(${target} ROOM)
  install(TARGETS ${target} EXPORT windrow)
  install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  windrow_pkg_config(${name})
  if(WINDROW_TESTS AND NOT WINDROW_SANITIZE)
    windrow_headers_alone(${name})
  endif()
endfunction()

# Writes and installs windrow-NAME.pc, with the arguments of windrow_room. The libraries are static, so that what they
# link is needed by every program; and paths start from the file, so that the installed tree may be moved.
function(windrow_pkg_config name)
  set(folder ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  string(REGEX REPLACE "[^/]+" .. to_prefix ${folder})
  string(REPLACE windrow:: windrow- requires "${ROOM_PUBLIC};${ROOM_PC_REQUIRES}")
  list(REMOVE_ITEM requires "")
  list(JOIN requires ", " requires)
  list(JOIN ROOM_PC_LIBS " " libs)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/room.pc.in ${PROJECT_BINARY_DIR}/windrow-${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/windrow-${name}.pc DESTINATION ${folder})
endfunction()

# Compiles each public header of a room twice over in a file of its own: it needs no other, and bears repetition.
function(windrow_headers_alone name)
  file(GLOB_RECURSE headers RELATIVE ${CMAKE_CURRENT_SOURCE_DIR}/include CONFIGURE_DEPENDS include/*.h)
  foreach(header ${headers})
    string(REPLACE / _ file ${header})
    set(file ${CMAKE_CURRENT_BINARY_DIR}/alone/${file}.cc)
    file(CONFIGURE OUTPUT ${file} CONTENT "#include \"${header}\"\n#include \"${header}\"\n")
    list(APPEND files ${file})
  endforeach()
  add_library(windrow_${name}_headers_alone OBJECT ${files})
  target_link_libraries(windrow_${name}_headers_alone PRIVATE windrow::${name} windrow_flags)
endfunction()

# windrow_texts(FUNCTION variable folder name...): writes a source with the function FUNCTION, which returns the texts of
# the files name.in in the folder by name, and sets the variable to its path.
function(windrow_texts function variable folder)
  set(texts)
  foreach(name ${ARGN})
    set(path ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/${name}.in)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${path})
    file(READ ${path} text)
    string(APPEND texts "    {\"${name}\", R\"printed(${text})printed\"},\n")
  endforeach()
  string(REGEX REPLACE "^(.*)::([^:]*)$" "\\1" space ${function})
  string(REGEX REPLACE "^.*::" "" short ${function})
  set(path ${CMAKE_CURRENT_BINARY_DIR}/${variable}.cc)
  file(CONFIGURE OUTPUT ${path} @ONLY CONTENT [[
#include <map>
#include <string>

namespace @space@ {

std::map<std::string, std::string> @short@();
std::map<std::string, std::string> @short@() {
  return {
@texts@  };
}

}  // namespace @space@
]])
  set(${variable} ${path} PARENT_SCOPE)
endfunction()
