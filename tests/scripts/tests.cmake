# The site builds, and its links and anchors lead to pages and headings that are there.
if(NOT WINDROW_SANITIZE)
  add_test(NAME site.builds COMMAND ${PROJECT_SOURCE_DIR}/scripts/site --out ${PROJECT_BINARY_DIR}/site_test)
  set_tests_properties(site.builds PROPERTIES SKIP_REGULAR_EXPRESSION "scripts/site: missing: ")
endif()

# The scripts, most of them with other programs in the place of those that they run.
if(NOT WINDROW_PROGRAMS)
  return()
endif()
windrow_test(
  scripts_test
  SOURCES scripts/scripts_test.cc scripts/site_test.cc scripts/timeline_test.cc
  LINKS
  DEFINITIONS WINDROW_BIN="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}" WINDROW_SOURCE_DIR="${PROJECT_SOURCE_DIR}" ${fake_plugin})
add_dependencies(scripts_test windrow windrow-perf windrow_no_work)
if(fake_plugin) # scripts/gpu bundles these
  add_dependencies(scripts_test windrow_cuda_plugin cuda_test)
endif()
