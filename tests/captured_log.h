// What is logged in this process while an object lives.
#pragma once

#include <glog/logging.h>

#include <mutex>
#include <string>

namespace farhop::testing {

class CapturedLog : public google::LogSink {
 public:
  CapturedLog() { google::AddLogSink(this); }
  ~CapturedLog() override { google::RemoveLogSink(this); }

  // One line each: "WARNING text".
  std::string text() const {
    std::lock_guard lock(mutex_);
    return text_;
  }
  size_t lines() const {
    std::lock_guard lock(mutex_);
    return lines_;
  }

  void send(google::LogSeverity severity, const char*, const char*, int, const struct ::tm*, const char* message,
            size_t length) override {
    std::lock_guard lock(mutex_);
    text_ += std::string(google::GetLogSeverityName(severity)) + " " + std::string(message, length) + "\n";
    ++lines_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
  size_t lines_ = 0;
};

}  // namespace farhop::testing
