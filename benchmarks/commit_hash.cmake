# Writes OUTPUT, a header with the commit of SOURCE_DIR ("unknown" outside a git checkout, "-changed" appended where
# tracked files differ from it). Untouched when nothing changed, so that nothing is rebuilt.
set(commit "unknown")
execute_process(COMMAND git -C ${SOURCE_DIR} rev-parse HEAD
  OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(NOT failed)
  set(commit ${head})
  execute_process(COMMAND git -C ${SOURCE_DIR} diff --quiet HEAD ERROR_QUIET OUTPUT_QUIET RESULT_VARIABLE changed)
  if(changed)
    string(APPEND commit "-changed")
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#define FARHOP_COMMIT \"${commit}\"\n")
