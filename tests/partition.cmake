# Small graphs and stores, for the tests of every module above.
add_library(farhop_fixture_graphs STATIC fixture_graphs.cpp)
target_link_libraries(farhop_fixture_graphs PUBLIC farhop_partition)
farhop_flags(farhop_fixture_graphs)

farhop_test(property/store_roundtrip_test.cpp LIBS farhop_fixture_graphs)
farhop_test(unit/partition_commands_test.cpp LIBS farhop_fixture_graphs farhop_partition_commands
            EXTRA unit/progress_display_test.cpp)
farhop_test(unit/dataset_reader_test.cpp LIBS farhop_fixture_graphs)
farhop_test(unit/partitioner_test.cpp LIBS farhop_fixture_graphs Farhop::metis)
farhop_test(unit/graph_store_test.cpp LIBS farhop_fixture_graphs)
farhop_test(unit/sampling_features_test.cpp LIBS farhop_fixture_graphs)
farhop_test(fault/store_damage_test.cpp LIBS farhop_fixture_graphs)
farhop_test(fault/store_checksums_test.cpp LIBS farhop_fixture_graphs)
farhop_test(fault/partition_signal_test.cpp LIBS farhop_fixture_graphs)
farhop_test(fault/store_atomicity_test.cpp LIBS farhop_fixture_graphs)
farhop_test(fuzz/manifest_fuzz_test.cpp LIBS farhop_fixture_graphs)
farhop_test(contract/store_numpy_test.cpp LIBS farhop_fixture_graphs)
target_compile_definitions(store_numpy_test PRIVATE
  FARHOP_NUMPY_CHECK="${CMAKE_CURRENT_SOURCE_DIR}/contract/store_numpy_check.py")

# Debian's own Python: the one that python3-numpy belongs to.
add_test(NAME unit.make_debian_dataset_test
  COMMAND /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/unit/make_debian_dataset_test.py)
set_tests_properties(unit.make_debian_dataset_test PROPERTIES LABELS unit TIMEOUT 120)
