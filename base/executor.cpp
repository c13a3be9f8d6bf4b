#include "base/executor.h"

#include <pthread.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/log.h"

namespace farhop {

Executor::Executor(std::string name, int threads) {
  threads_.reserve(static_cast<size_t>(std::max(threads, 1)));
  for (int i = 0; i < std::max(threads, 1); ++i) {
    threads_.emplace_back([state = state_, threadName = name + "/" + std::to_string(i)] { run(state, threadName); });
  }
}

Executor::~Executor() { shutdown(); }

bool Executor::post(std::function<void()> work) {
  // Once queued, the work may run and end this executor before the wake-up below.
  const std::shared_ptr<State> state = state_;
  {
    std::lock_guard lock(state->mutex);
    if (state->stopping) return false;
    state->queue.push_back(std::move(work));
  }
  state->wake.notify_one();
  return true;
}

void Executor::shutdown() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->wake.notify_all();
  for (std::thread& thread : threads_) {
    if (!thread.joinable()) continue;
    if (thread.get_id() == std::this_thread::get_id()) {
      thread.detach();
    } else {
      thread.join();
    }
  }
}

size_t Executor::backlog() const {
  std::lock_guard lock(state_->mutex);
  return state_->queue.size();
}

void Executor::run(const std::shared_ptr<State>& state, const std::string& threadName) {
  setThreadName(threadName);
  std::unique_lock lock(state->mutex);
  for (;;) {
    state->wake.wait(lock, [&] { return state->stopping || !state->queue.empty(); });
    if (state->queue.empty()) return;
    std::function<void()> work = std::move(state->queue.front());
    state->queue.pop_front();
    lock.unlock();
    try {
      work();
    } catch (const std::exception& error) {
      FARHOP_LOG(ERROR) << "a piece of work on " << threadName << " failed: " << error.what();
    }
    work = nullptr;
    lock.lock();
  }
}

void setThreadName(const std::string& name) { pthread_setname_np(pthread_self(), name.substr(0, 15).c_str()); }

}  // namespace farhop
