# Finds libfabric's headers; defines the imported target Farhop::libfabric. The library itself is loaded at run time,
# by the processes that want it (rpc/fabric_library.h), so nothing links it.
find_path(Libfabric_INCLUDE_DIR NAMES rdma/fabric.h)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Libfabric REQUIRED_VARS Libfabric_INCLUDE_DIR)
if(Libfabric_FOUND AND NOT TARGET Farhop::libfabric)
  add_library(Farhop::libfabric INTERFACE IMPORTED)
  set_target_properties(Farhop::libfabric PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${Libfabric_INCLUDE_DIR}")
endif()
mark_as_advanced(Libfabric_INCLUDE_DIR)
