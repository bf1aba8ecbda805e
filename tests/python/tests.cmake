# The tests of the Python package, a file a test. Those with label `torch` skip in one line where torch is missing.
if(NOT TARGET _windrow)
  return()
endif()
set(environment "PYTHONPATH=${PROJECT_BINARY_DIR}/python;PYTHONDONTWRITEBYTECODE=1")
set(pattern "test_*")
if(WINDROW_SANITIZE)
  # Python itself is not compiled with it, but its lock is made of functions that ThreadSanitizer replaces. The tests of
  # memory and forks count what ThreadSanitizer needs, and fork where it cannot follow.
  set(pattern "test_engine*")
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libtsan.so OUTPUT_VARIABLE preload
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  list(APPEND environment "LD_PRELOAD=${preload}")
endif()
file(GLOB files CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR}/python python/${pattern}.py)
if(WINDROW_SANITIZE)
  list(FILTER files EXCLUDE REGEX "memory|forks")
endif()
foreach(file IN LISTS files)
  string(REGEX REPLACE "test_(.*)\\.py" "python.\\1" name ${file})
  set(labels python)
  if(file MATCHES "torch")
    list(APPEND labels torch)
  endif()
  add_test(NAME ${name} COMMAND ${WINDROW_PYTHON_EXECUTABLE} -m pytest -q -rs ${CMAKE_CURRENT_SOURCE_DIR}/python/${file})
  # Status 5: a file that asks for a package that is missing has no test.
  set_tests_properties(
    ${name} PROPERTIES TIMEOUT 300 LABELS "${labels}" ENVIRONMENT "${environment}" SKIP_RETURN_CODE 5
                       FAIL_REGULAR_EXPRESSION "nanobind: leaked")
endforeach()
if(WINDROW_SANITIZE)
  return()
endif()
add_test(NAME python.memory_soak COMMAND ${WINDROW_PYTHON_EXECUTABLE} -m pytest -q -rs
                                         ${CMAKE_CURRENT_SOURCE_DIR}/python/test_memory.py)
set_tests_properties(python.memory_soak PROPERTIES TIMEOUT 1800 LABELS "python;soak"
                                                   ENVIRONMENT "${environment};WINDROW_STEPS=100000")

# The types of the package and of its examples.
file(GLOB typed CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/python/*.py)
add_test(NAME python.types
         COMMAND ${WINDROW_PYTHON_EXECUTABLE} -m mypy --config-file ${PROJECT_SOURCE_DIR}/pyproject.toml --cache-dir
                 ${PROJECT_BINARY_DIR}/mypy ${PROJECT_BINARY_DIR}/python/windrow ${typed})
set_tests_properties(python.types PROPERTIES TIMEOUT 300 LABELS python
                                             ENVIRONMENT "MYPYPATH=${PROJECT_BINARY_DIR}/python")
