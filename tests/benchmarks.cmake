if(NOT FARHOP_BUILD_BENCHMARKS)
  return()
endif()

farhop_test(unit/benchmark_report_test.cpp LIBS farhop_benchmarks nlohmann_json::nlohmann_json)
farhop_test(unit/rmat_graph_test.cpp LIBS farhop_benchmarks)
farhop_test(unit/benchmark_measuring_test.cpp LIBS farhop_benchmarks)
farhop_test(multiproc/benchmark_processes_test.cpp LIBS farhop_benchmarks)

# Every benchmark of farhop-bench, at its small size.
set(benchmarks cache exchange features limits loader sampler)
if(FARHOP_WITH_TORCH)
  list(APPEND benchmarks memory startup)
endif()
foreach(name IN LISTS benchmarks)
  add_test(NAME benchmark.${name}
    COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/benchmark/small_benchmark_test.py $<TARGET_FILE:farhop-bench> ${name})
  set_tests_properties(benchmark.${name} PROPERTIES LABELS benchmark TIMEOUT 120
                       ENVIRONMENT "${sanitizerEnvironment}")
endforeach()
