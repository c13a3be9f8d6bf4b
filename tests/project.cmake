# Tests of the project as a whole: structure, whole jobs, a user's build.
add_test(NAME unit.module_arrows COMMAND python3 ${PROJECT_SOURCE_DIR}/tests/unit/module_arrows_test.py)
set_tests_properties(unit.module_arrows PROPERTIES LABELS unit TIMEOUT 60)

if(NOT FARHOP_WITH_TORCH)
  return()
endif()

add_executable(api_trainer multiproc/api_trainer.cpp multiproc/api_position_checks.cpp multiproc/api_pull_checks.cpp multiproc/api_walk_checks.cpp)
set_target_properties(api_trainer PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/multiproc)
target_link_libraries(api_trainer PRIVATE Farhop::farhop)
target_include_directories(api_trainer PRIVATE ${PROJECT_SOURCE_DIR})
target_include_directories(api_trainer SYSTEM PRIVATE ${TORCH_INCLUDE_DIRS})
farhop_flags(api_trainer)
farhop_reuse_headers(api_trainer torch_tests)

farhop_test(unit/loader_options_test.cpp LIBS farhop_runtime farhop_fixture_graphs HEADERS none)

farhop_test(multiproc/whole_job_test.cpp LIBS farhop_fixture_graphs nlohmann_json::nlohmann_json
            EXTRA open_ports.cpp multiproc/farhop_process.cpp TIMEOUT 300)
target_compile_definitions(whole_job_test PRIVATE
  FARHOP_PROGRAM="$<TARGET_FILE:farhop>" API_TRAINER="$<TARGET_FILE:api_trainer>")
add_dependencies(whole_job_test farhop api_trainer)

add_executable(inference_trainer multiproc/inference_trainer.cpp)
set_target_properties(inference_trainer PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/multiproc)
target_link_libraries(inference_trainer PRIVATE Farhop::farhop)
target_include_directories(inference_trainer SYSTEM PRIVATE ${TORCH_INCLUDE_DIRS})
farhop_flags(inference_trainer)
farhop_reuse_headers(inference_trainer torch_tests)

farhop_test(multiproc/inference_test.cpp LIBS farhop_fixture_graphs nlohmann_json::nlohmann_json
            EXTRA multiproc/farhop_process.cpp TIMEOUT 300)
target_compile_definitions(inference_test PRIVATE
  FARHOP_PROGRAM="$<TARGET_FILE:farhop>" INFERENCE_TRAINER="$<TARGET_FILE:inference_trainer>")
add_dependencies(inference_test farhop inference_trainer)

# Installs into a directory of its own, builds a user's project against that, and runs it.
farhop_test(consumer/consumer_test.cpp LIBS farhop_partition farhop_fixture_graphs TIMEOUT 300)
target_compile_definitions(consumer_test PRIVATE
  BUILD_DIRECTORY="${PROJECT_BINARY_DIR}" README="${PROJECT_SOURCE_DIR}/README.md" CONSUMER_PROJECT="${CMAKE_CURRENT_SOURCE_DIR}/consumer/project")
add_dependencies(consumer_test farhop farhop_shared)

# The example, on a small graph; and the whole quickstart, which takes minutes.
add_test(NAME multiproc.sage COMMAND /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/multiproc/sage_test.py
                                     $<TARGET_FILE:farhop> $<TARGET_FILE:farhop-sage> $<TARGET_FILE:farhop-sgc>)
set_tests_properties(multiproc.sage PROPERTIES LABELS multiproc TIMEOUT 240)
add_test(NAME fault.checkpoint COMMAND /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/fault/checkpoint_test.py
                                       $<TARGET_FILE:farhop> $<TARGET_FILE:farhop-sage>)
set_tests_properties(fault.checkpoint PROPERTIES LABELS fault TIMEOUT 240)
# A real Slurm of two nodes: as root, and only once, in the build that users run.
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  add_test(NAME slurm.jobs COMMAND /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/slurm/slurm_test.py
                                   $<TARGET_FILE:farhop> $<TARGET_FILE:farhop-sage>)
  set_tests_properties(slurm.jobs PROPERTIES LABELS slurm TIMEOUT 320 COST 100 SKIP_RETURN_CODE 77)
  add_test(NAME slurm.all COMMAND /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/slurm/slurm_test.py
                                  $<TARGET_FILE:farhop> $<TARGET_FILE:farhop-sage> --full)
  set_tests_properties(slurm.all PROPERTIES LABELS "slurm;full" TIMEOUT 1600 SKIP_RETURN_CODE 77)
endif()
add_test(NAME consumer.quickstart COMMAND /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/consumer/quickstart_test.py)
set_tests_properties(consumer.quickstart PROPERTIES LABELS "consumer;full" TIMEOUT 1800)

# Two machines on a slow network of their own, where the kernel lets the user make one. The figures take two minutes and a
# quiet machine.
set(prefetchNetwork /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/cluster/prefetch_network.py $<TARGET_FILE:farhop>
                    $<TARGET_FILE:farhop-sage>)
add_test(NAME cluster.prefetch COMMAND ${prefetchNetwork} --functional)
set_tests_properties(cluster.prefetch PROPERTIES LABELS cluster TIMEOUT 240 SKIP_RETURN_CODE 77)
add_test(NAME cluster.prefetch_figures COMMAND ${prefetchNetwork})
set_tests_properties(cluster.prefetch_figures PROPERTIES LABELS "cluster;full" TIMEOUT 1200 SKIP_RETURN_CODE 77 RUN_SERIAL ON)
