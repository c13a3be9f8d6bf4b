// Which source this program was built from.
#pragma once

namespace farhop::benchmarks {

// Hash of the commit, with "-changed" where the checkout differed from it; "unknown" outside a checkout.
const char* commitHash();

}  // namespace farhop::benchmarks
