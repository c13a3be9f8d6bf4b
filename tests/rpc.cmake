farhop_test(contract/agent_contract_test.cpp LIBS farhop_rpc)
