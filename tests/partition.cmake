# Small graphs and stores, for the tests of every module above.
add_library(farhop_fixture_graphs STATIC fixture_graphs.cpp)
target_link_libraries(farhop_fixture_graphs PUBLIC farhop_partition)
farhop_flags(farhop_fixture_graphs)

farhop_test(property/store_roundtrip_test.cpp LIBS farhop_fixture_graphs)
