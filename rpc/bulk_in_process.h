// A bulk device whose peers live in the same process: transfers are memory copies. The reference that the other
// devices are tested against.
#pragma once

#include <memory>

#include "rpc/bulk_device.h"

namespace farhop::rpc {

std::unique_ptr<BulkDevice> makeInProcessBulkDevice();

}  // namespace farhop::rpc
