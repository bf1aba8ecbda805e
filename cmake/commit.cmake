# Writes OUTPUT, a source with the commit that is checked out in SOURCE: the function source_commit() of text.h. It is
# "unknown" without GIT, and if SOURCE is not the top of a git tree.
set(commit unknown)
if(GIT)
  execute_process(
    COMMAND ${GIT} -C ${SOURCE} rev-parse --show-prefix --short=12 HEAD
    OUTPUT_VARIABLE told RESULT_VARIABLE failed ERROR_QUIET)
  # The first line is the path of SOURCE in its tree: empty at the top.
  if(NOT failed AND told MATCHES "^\n([0-9a-f]+)\n$")
    set(commit ${CMAKE_MATCH_1})
  endif()
endif()
# Not only if it changes: its time says that it is newer than the log of commits.
file(
  WRITE ${OUTPUT}
  "#include \"program/output/text.h\"\n\nstd::string windrow::program::source_commit() { return \"${commit}\"; }\n")
