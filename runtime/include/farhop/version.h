// Which Farhop a program runs with.
#pragma once

namespace farhop {

// "0.1.0": of the library that is loaded, which may differ from the headers'.
const char* version();

}  // namespace farhop
