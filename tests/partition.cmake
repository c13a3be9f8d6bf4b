# Small graphs and stores, for the tests of every module above.
add_library(farhop_fixture_graphs STATIC fixture_graphs.cpp)
target_link_libraries(farhop_fixture_graphs PUBLIC farhop_partition)
farhop_flags(farhop_fixture_graphs)

# Where the program is not built, its two commands still are.
include(${PROJECT_SOURCE_DIR}/launcher/partition_commands.cmake)

farhop_test(property/store_roundtrip_test.cpp LIBS farhop_fixture_graphs)
farhop_test(unit/partition_commands_test.cpp LIBS farhop_fixture_graphs farhop_partition_commands)
farhop_test(unit/dataset_reader_test.cpp LIBS farhop_fixture_graphs)
farhop_test(unit/partitioner_test.cpp LIBS farhop_fixture_graphs Farhop::metis)
