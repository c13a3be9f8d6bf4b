set(rpc_tests
    unit/agent_link_test
    unit/store_test
    contract/agent_contract_test
    contract/agent_hostile_peer_test
    contract/gloo_store_test
    multiproc/agent_multiproc_test
    fuzz/wire_fuzz_test
    fuzz/store_fuzz_test)
foreach(test ${rpc_tests})
  farhop_test(${test}.cpp LIBS farhop_rpc)
endforeach()
farhop_test(multiproc/bulk_multiproc_test.cpp LIBS farhop_rpc EXTRA open_ports.cpp)
farhop_test(contract/bulk_transport_test.cpp LIBS farhop_rpc Farhop::libfabric EXTRA contract/bulk_device_faults.cpp open_ports.cpp)
