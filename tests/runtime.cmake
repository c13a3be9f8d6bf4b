# Forked children and what they share, for tests of several processes.
farhop_test(unit/topology_test.cpp LIBS farhop_runtime_core)
farhop_test(unit/failure_monitor_test.cpp LIBS farhop_runtime_core)
farhop_test(multiproc/local_channel_test.cpp LIBS farhop_runtime_core EXTRA process_group.cpp)
farhop_test(multiproc/start_gate_test.cpp LIBS farhop_runtime_core EXTRA process_group.cpp)
farhop_test(fuzz/local_channel_fuzz_test.cpp LIBS farhop_runtime_core)
farhop_test(multiproc/collectives_test.cpp LIBS farhop_runtime_core EXTRA process_group.cpp TIMEOUT 240)
