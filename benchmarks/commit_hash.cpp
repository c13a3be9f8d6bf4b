#include "benchmarks/commit_hash.h"

#include "commit_hash_value.h"  // written by commit_hash.cmake

namespace farhop::benchmarks {

const char* commitHash() { return FARHOP_COMMIT; }

}  // namespace farhop::benchmarks
