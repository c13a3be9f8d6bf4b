# farhop_module(NAME SOURCES ... PUBLIC ... PRIVATE ...): one static library per folder, `farhop_NAME`.
# farhop_flags(TARGET): the warnings and sanitizers that every target of ours is built with.

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
endfunction()
