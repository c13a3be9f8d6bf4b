# farhop_module(NAME SOURCES ... PUBLIC ... PRIVATE ... [HEADERS KIND]): one static library per folder, `farhop_NAME`.
# farhop_flags(TARGET): the warnings and sanitizers that every target of ours is built with.
# farhop_precompiled_headers(KIND [LIBRARY] HEADERS ... [LIBS ...]), farhop_reuse_headers(TARGET KIND): headers that are
# parsed once for all sources of a kind that FARHOP_PRECOMPILED_HEADERS names. Without it, includes that are missing show.

function(farhop_flags target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wno-missing-field-initializers)
  # GCC 12 takes string literals, temporary strings and strings moved out of a StatusOr for faults when it optimises. What
  # its optimiser suspects is shown and ends no build; the sanitizers find real faults.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
  if(FARHOP_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
    foreach(suspicion maybe-uninitialized array-bounds stringop-overflow stringop-overread dangling-pointer use-after-free
                      free-nonheap-object)
      target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-error=${suspicion}>)
    endforeach()
  endif()
  # Sources compiled together: a coroutine's frame may hold what only one of them names.
  if(CMAKE_UNITY_BUILD)
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
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
  cmake_parse_arguments(ARG "" "HEADERS" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  if(NOT ARG_HEADERS)
    set(ARG_HEADERS modules)
  endif()
  add_library(farhop_${name} STATIC ${ARG_SOURCES})
  target_include_directories(farhop_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(farhop_${name} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  farhop_flags(farhop_${name})
  farhop_reuse_headers(farhop_${name} ${ARG_HEADERS})
endfunction()

function(farhop_precompiled_headers name)
  if(NOT name IN_LIST FARHOP_PRECOMPILED_HEADERS)
    return()
  endif()
  cmake_parse_arguments(ARG "LIBRARY" "" "HEADERS;LIBS" ${ARGN})
  # Reused only by targets of the same flags: programs are compiled as programs, libraries as libraries.
  file(WRITE ${PROJECT_BINARY_DIR}/headers_${name}.cpp "int main() { return 0; }\n")
  if(ARG_LIBRARY)
    add_library(farhop_headers_${name} OBJECT ${PROJECT_BINARY_DIR}/headers_${name}.cpp)
  else()
    add_executable(farhop_headers_${name} ${PROJECT_BINARY_DIR}/headers_${name}.cpp)
  endif()
  target_include_directories(farhop_headers_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(farhop_headers_${name} PRIVATE absl::status absl::statusor absl::strings ${ARG_LIBS})
  if(torch IN_LIST ARG_LIBS)
    target_include_directories(farhop_headers_${name} SYSTEM PRIVATE ${TORCH_INCLUDE_DIRS})
  endif()
  farhop_flags(farhop_headers_${name})
  target_precompile_headers(farhop_headers_${name}
                            PRIVATE <absl/status/statusor.h> <absl/strings/str_cat.h> ${ARG_HEADERS})
endfunction()

function(farhop_reuse_headers target name)
  if(TARGET farhop_headers_${name})
    target_precompile_headers(${target} REUSE_FROM farhop_headers_${name})
  endif()
endfunction()
