# Debian's own Python, whose numpy and torch write what is imported.
add_test(NAME contract.import_test COMMAND /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/contract/import_test.py
                                           $<TARGET_FILE:farhop>)
set_tests_properties(contract.import_test PROPERTIES LABELS contract TIMEOUT 180 ENVIRONMENT "${sanitizerEnvironment}")
farhop_test(property/import_export_test.cpp LIBS farhop_fixture_graphs farhop_importers)
farhop_test(unit/edge_list_test.cpp LIBS farhop_importers ZLIB::ZLIB Farhop::zstd)
farhop_test(fuzz/import_fuzz_test.cpp LIBS farhop_importers)
