# farhop_module(NAME SOURCES ... PUBLIC ... PRIVATE ...): one static library per folder, `farhop_NAME`.
# farhop_flags(TARGET): the warnings and sanitizers that every target of ours is built with.
# farhop_precompiled_headers(NAME headers...), farhop_reuse_headers(TARGET NAME): headers that are parsed once for all
# programs of a kind, with FARHOP_PRECOMPILED_HEADERS. Presets without it show includes that are missing.

function(farhop_flags target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wno-missing-field-initializers)
  if(FARHOP_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(FARHOP_SANITIZE STREQUAL "address")
    target_compile_options(${target} PRIVATE -fsanitize=address,undefined -fno-sanitize-recover=undefined
                                             -fno-omit-frame-pointer)
    target_link_options(${target} PRIVATE -fsanitize=address,undefined)
  elseif(FARHOP_SANITIZE STREQUAL "thread")
    # GCC warns about std::atomic_thread_fence under TSan, which Abseil's headers use.
    target_compile_options(${target} PRIVATE -fsanitize=thread -fno-omit-frame-pointer -Wno-tsan)
    target_link_options(${target} PRIVATE -fsanitize=thread)
  endif()
endfunction()

function(farhop_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(farhop_${name} STATIC ${ARG_SOURCES})
  target_include_directories(farhop_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(farhop_${name} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  farhop_flags(farhop_${name})
  farhop_reuse_headers(farhop_${name} modules)
endfunction()

function(farhop_precompiled_headers name)
  if(NOT FARHOP_PRECOMPILED_HEADERS)
    return()
  endif()
  # Reused only by targets of the same flags: programs are compiled as programs, libraries as libraries.
  file(WRITE ${PROJECT_BINARY_DIR}/headers_${name}.cpp "int main() { return 0; }\n")
  if(name STREQUAL "modules")
    add_library(farhop_headers_${name} OBJECT ${PROJECT_BINARY_DIR}/headers_${name}.cpp)
  else()
    add_executable(farhop_headers_${name} ${PROJECT_BINARY_DIR}/headers_${name}.cpp)
  endif()
  target_include_directories(farhop_headers_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(farhop_headers_${name} PRIVATE absl::status absl::statusor absl::strings)
  farhop_flags(farhop_headers_${name})
  target_precompile_headers(farhop_headers_${name} PRIVATE <absl/status/statusor.h> <absl/strings/str_cat.h> ${ARGN})
endfunction()

function(farhop_reuse_headers target name)
  if(FARHOP_PRECOMPILED_HEADERS)
    target_precompile_headers(${target} REUSE_FROM farhop_headers_${name})
  endif()
endfunction()
