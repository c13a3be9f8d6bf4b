# The commands that need no run-time: farhop import, export, partition and inspect. A library, so that tests run them
# without the program; linked into the program where that exists.
if(NOT TARGET farhop_partition_commands)
  add_library(farhop_partition_commands STATIC
    ${CMAKE_CURRENT_LIST_DIR}/degree_figures.cpp
    ${CMAKE_CURRENT_LIST_DIR}/degree_svg.cpp
    ${CMAKE_CURRENT_LIST_DIR}/export_command.cpp
    ${CMAKE_CURRENT_LIST_DIR}/import_command.cpp
    ${CMAKE_CURRENT_LIST_DIR}/inspect_command.cpp
    ${CMAKE_CURRENT_LIST_DIR}/node_view.cpp
    ${CMAKE_CURRENT_LIST_DIR}/partition_command.cpp
    ${CMAKE_CURRENT_LIST_DIR}/progress_display.cpp
    ${CMAKE_CURRENT_LIST_DIR}/progress_line.cpp
    ${CMAKE_CURRENT_LIST_DIR}/step_progress.cpp
    ${CMAKE_CURRENT_LIST_DIR}/store_summary.cpp
    ${CMAKE_CURRENT_LIST_DIR}/text_table.cpp)
  target_link_libraries(farhop_partition_commands PUBLIC farhop_partition farhop_importers CLI11::CLI11
                                                  PRIVATE nlohmann_json::nlohmann_json)
  farhop_flags(farhop_partition_commands)
  farhop_reuse_headers(farhop_partition_commands modules)
endif()
if(TARGET farhop)
  target_link_libraries(farhop PRIVATE farhop_partition_commands)
endif()
