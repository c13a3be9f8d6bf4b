# Finds Tensorpipe: its header and library. Defines the imported target Farhop::tensorpipe.
find_path(Tensorpipe_INCLUDE_DIR NAMES tensorpipe/tensorpipe.h)
find_library(Tensorpipe_LIBRARY NAMES tensorpipe)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Tensorpipe REQUIRED_VARS Tensorpipe_LIBRARY Tensorpipe_INCLUDE_DIR)
if(Tensorpipe_FOUND AND NOT TARGET Farhop::tensorpipe)
  add_library(Farhop::tensorpipe UNKNOWN IMPORTED)
  set_target_properties(Farhop::tensorpipe PROPERTIES
    IMPORTED_LOCATION "${Tensorpipe_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${Tensorpipe_INCLUDE_DIR}")
endif()
mark_as_advanced(Tensorpipe_INCLUDE_DIR Tensorpipe_LIBRARY)
