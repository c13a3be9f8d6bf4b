farhop_test(unit/store_test.cpp LIBS farhop_rpc)
farhop_test(contract/agent_contract_test.cpp LIBS farhop_rpc)
farhop_test(contract/gloo_store_test.cpp LIBS farhop_rpc)
