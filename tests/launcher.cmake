farhop_test(unit/launch_contract_test.cpp LIBS farhop_launch_contract)
farhop_test(fuzz/node_list_fuzz_test.cpp LIBS farhop_launch_contract)
farhop_test(unit/run_options_test.cpp LIBS farhop_launcher)
farhop_test(unit/job_test.cpp LIBS farhop_launcher)
farhop_test(unit/output_pump_test.cpp LIBS farhop_launcher)
farhop_test(unit/host_file_test.cpp LIBS farhop_launcher)
farhop_test(fuzz/agent_protocol_fuzz_test.cpp LIBS farhop_launcher)

# A trainer without a graph, for tests of the launcher alone.
add_executable(launcher_test_trainer multiproc/launcher_test_trainer.cpp)
set_target_properties(launcher_test_trainer PROPERTIES
  RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/multiproc)
target_link_libraries(launcher_test_trainer PRIVATE farhop_launch_contract nlohmann_json::nlohmann_json)
farhop_flags(launcher_test_trainer)

foreach(name farhop_run_test farhop_run_output_test farhop_run_end_test)
  farhop_test(multiproc/${name}.cpp LIBS farhop_base nlohmann_json::nlohmann_json
              EXTRA multiproc/farhop_process.cpp TIMEOUT 180)
  target_compile_definitions(${name} PRIVATE
    FARHOP_PROGRAM="$<TARGET_FILE:farhop>" TEST_TRAINER="$<TARGET_FILE:launcher_test_trainer>")
  add_dependencies(${name} farhop launcher_test_trainer)
endforeach()

farhop_test(multiproc/agent_end_test.cpp LIBS farhop_launcher nlohmann_json::nlohmann_json
            EXTRA multiproc/farhop_process.cpp TIMEOUT 180)
target_compile_definitions(agent_end_test PRIVATE
  FARHOP_PROGRAM="$<TARGET_FILE:farhop>" TEST_TRAINER="$<TARGET_FILE:launcher_test_trainer>")
add_dependencies(agent_end_test farhop launcher_test_trainer)

# Kills on the way of a start that only the launcher sees; the trainer starts a session, without a graph.
target_compile_definitions(test_extra_farhop_process PRIVATE FARHOP_PROGRAM="$<TARGET_FILE:farhop>")
add_executable(launched_trainer fault/launched_trainer.cpp)
set_target_properties(launched_trainer PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/fault)
target_link_libraries(launched_trainer PRIVATE farhop_runtime_core)
target_include_directories(launched_trainer PRIVATE ${PROJECT_SOURCE_DIR})
farhop_flags(launched_trainer)
farhop_test(fault/launched_kill_test.cpp LIBS farhop_base nlohmann_json::nlohmann_json
            EXTRA multiproc/farhop_process.cpp TIMEOUT 180)
target_compile_definitions(launched_kill_test PRIVATE
  FARHOP_PROGRAM="$<TARGET_FILE:farhop>" FATAL_TRAINER="$<TARGET_FILE:launched_trainer>")
add_dependencies(launched_kill_test farhop launched_trainer)

# farhop ps and clean, on jobs that stay.
farhop_test(multiproc/job_tools_test.cpp LIBS farhop_job_commands farhop_runtime_core nlohmann_json::nlohmann_json
            EXTRA multiproc/farhop_process.cpp TIMEOUT 180)
target_compile_definitions(job_tools_test PRIVATE
  FARHOP_PROGRAM="$<TARGET_FILE:farhop>" STAYING_TRAINER="$<TARGET_FILE:launched_trainer>")
add_dependencies(job_tools_test farhop launched_trainer)

farhop_test(multiproc/doctor_test.cpp LIBS farhop_job_commands farhop_fixture_graphs nlohmann_json::nlohmann_json
            EXTRA multiproc/farhop_process.cpp TIMEOUT 180)
target_compile_definitions(doctor_test PRIVATE
  FARHOP_PROGRAM="$<TARGET_FILE:farhop>" FARHOP_TEST_VERSION="${PROJECT_VERSION}")
add_dependencies(doctor_test farhop)

# Three hosts as network namespaces, with sshds: as root, and only once, in the build that users run.
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  add_test(NAME cluster.run COMMAND /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/cluster/cluster_run_test.py
                                    $<TARGET_FILE:farhop> $<TARGET_FILE:launcher_test_trainer> $<TARGET_FILE:launched_trainer>)
  if(FARHOP_WITH_TORCH)
    set(clusterTrainer $<TARGET_FILE:farhop-sage>)
  endif()
  add_test(NAME cluster.phases COMMAND /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/cluster/cluster_phases_test.py
                                       $<TARGET_FILE:farhop> ${clusterTrainer})
  set_tests_properties(cluster.run cluster.phases PROPERTIES LABELS cluster COST 100 TIMEOUT 180 SKIP_RETURN_CODE 77)
endif()
if(TEST cluster.run)
  add_test(NAME cluster.tools COMMAND /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/cluster/cluster_tools_test.py
                                      $<TARGET_FILE:farhop> $<TARGET_FILE:launched_trainer>)
  set_tests_properties(cluster.tools PROPERTIES LABELS cluster COST 100 TIMEOUT 180 SKIP_RETURN_CODE 77)
endif()
