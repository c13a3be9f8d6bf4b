# The commands that look at jobs and machines: farhop ps, clean and doctor. A library, so that tests run them without the
# program.
if(NOT TARGET farhop_job_commands)
  add_library(farhop_job_commands STATIC
    ${CMAKE_CURRENT_LIST_DIR}/binding_drawing.cpp
    ${CMAKE_CURRENT_LIST_DIR}/clean_command.cpp
    ${CMAKE_CURRENT_LIST_DIR}/doctor_checks.cpp
    ${CMAKE_CURRENT_LIST_DIR}/doctor_command.cpp
    ${CMAKE_CURRENT_LIST_DIR}/doctor_remote.cpp
    ${CMAKE_CURRENT_LIST_DIR}/doctor_serve.cpp
    ${CMAKE_CURRENT_LIST_DIR}/farhop_on_hosts.cpp
    ${CMAKE_CURRENT_LIST_DIR}/line_channel.cpp
    ${CMAKE_CURRENT_LIST_DIR}/ps_command.cpp)
  target_link_libraries(farhop_job_commands PUBLIC farhop_launcher farhop_partition_commands farhop_topology
                                            PRIVATE nlohmann_json::nlohmann_json)
  farhop_flags(farhop_job_commands)
  farhop_reuse_headers(farhop_job_commands modules)
endif()
if(TARGET farhop)
  target_link_libraries(farhop PRIVATE farhop_job_commands)
endif()
