// A lazily started coroutine with one result, and a way to start one from ordinary code.
//
// Internal: public headers show no coroutines. Parameters of a coroutine are pointers or values, never
// references to temporaries, since it may outlive its caller's statement.
#pragma once

#include <coroutine>
#include <exception>
#include <functional>
#include <new>
#include <optional>
#include <utility>

#include "base/frame_memory.h"
#include "base/status.h"

namespace farhop {

// A coroutine that yields a T. Move-only; runs when awaited, and resumes its awaiter when done. Not
// thread-safe; it may be resumed on another thread than it was suspended on.
template <typename T>
class Task {
 public:
  struct promise_type : KeptFrame {
    std::optional<T> value;
    std::exception_ptr error;
    std::coroutine_handle<> awaiter = std::noop_coroutine();

    Task get_return_object() { return Task(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    struct Final {
      bool await_ready() noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> self) noexcept {
        return self.promise().awaiter;
      }
      void await_resume() noexcept {}
    };
    Final final_suspend() noexcept { return {}; }
    void return_value(T result) { value.emplace(std::move(result)); }
    // Passed to whoever awaits, as a call would.
    void unhandled_exception() { error = std::current_exception(); }
  };

  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Task& operator=(Task&&) = delete;
  ~Task() {
    if (handle_) handle_.destroy();
  }

  bool await_ready() const noexcept { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiter) noexcept {
    handle_.promise().awaiter = awaiter;
    return handle_;
  }
  T await_resume() {
    if (handle_.promise().error) std::rethrow_exception(handle_.promise().error);
    return std::move(*handle_.promise().value);
  }

 private:
  explicit Task(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

namespace task_internal {
// Starts at once and frees itself at the end.
struct Detached {
  struct promise_type : KeptFrame {
    Detached get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    // runDetached() lets out only what `done` throws, and that must not throw.
    void unhandled_exception() noexcept { std::terminate(); }
  };
};

template <typename T>
Detached runDetached(Task<T> task, std::function<void(T)> done) {
  std::optional<T> result;
  try {
    T value = co_await task;
    result.emplace(std::move(value));
  } catch (const std::bad_alloc&) {
    result.emplace(absl::ResourceExhaustedError("out of memory"));
  }
  done(std::move(*result));
}
}  // namespace task_internal

// Runs `task` on the calling thread until its first suspension; `done` gets the result on whatever thread
// the task ends on. T is a StatusOr: running out of memory becomes ResourceExhausted. `done` must not throw.
template <typename T>
void startTask(Task<T> task, std::function<void(T)> done) {
  task_internal::runDetached<T>(std::move(task), std::move(done));
}

}  // namespace farhop
