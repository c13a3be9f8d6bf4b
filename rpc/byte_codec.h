// The byte codec of base, under the names that this module's wire formats use.
#pragma once

#include "base/byte_codec.h"

namespace farhop::rpc {

using farhop::ByteReader;
using farhop::ByteWriter;
using farhop::equalInConstantTime;

}  // namespace farhop::rpc
