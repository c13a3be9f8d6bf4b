#include "farhop/version.h"

namespace farhop {

const char* version() { return FARHOP_VERSION; }

}  // namespace farhop
