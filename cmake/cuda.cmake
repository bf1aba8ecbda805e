# The CUDA toolkit, if there is one: then the target windrow_cuda_flags exists.
if(WINDROW_CUDA)
  include(CheckLanguage)
  check_language(CUDA)
endif()
if(NOT WINDROW_CUDA OR NOT CMAKE_CUDA_COMPILER)
  message(STATUS "Without the plug-in for CUDA devices and its tests: there is no nvcc, or WINDROW_CUDA is off")
  return()
endif()
find_package(CUDAToolkit REQUIRED)
if(CUDAToolkit_VERSION VERSION_LESS 12.8)
  message(STATUS "Without the plug-in for CUDA devices and its tests: the CUDA toolkit is of version "
                 "${CUDAToolkit_VERSION}; expected 12.8 or later")
  return()
endif()
windrow_uses(CUDAToolkit "${CUDAToolkit_VERSION}" LICENSE NOASSERTION PLUG_IN)
set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
if(WINDROW_SANITIZE)
  set(CMAKE_CUDA_ARCHITECTURES 90-virtual) # the host's part of the code is all that runs; this is the shortest build
endif()
enable_language(CUDA)
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20) # CMake 3.25 does not know that nvcc has C++20
set(CMAKE_CUDA_STANDARD 20)

# What sources for nvcc are compiled with. Warning 554 is about conversions that Matrix does not have for const.
add_library(windrow_cuda_flags INTERFACE)
target_compile_options(
  windrow_cuda_flags
  INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-diag-suppress=554;-Werror=all-warnings>"
            "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>"
            "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow>")
string(REPLACE "," ";" sanitizers "${WINDROW_SANITIZE}")
foreach(sanitizer ${sanitizers})
  target_compile_options(windrow_cuda_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${sanitizer}>
                                                      $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fsanitize=${sanitizer}>)
endforeach()
