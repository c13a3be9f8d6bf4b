// Counters of one runtime, in a Prometheus registry of its own (no process-wide state).
#pragma once

#include <memory>
#include <string>

namespace prometheus {
class Counter;
class Registry;
}  // namespace prometheus

namespace farhop {

// Thread-safe. Created once per process by whoever owns the runtime and passed down by pointer.
class Metrics {
 public:
  // A monotonic counter; a handle is valid as long as its Metrics. Adding costs one atomic operation, so
  // hot loops add once per batch, not per edge.
  class Counter {
   public:
    void add(double amount);
    double value() const;

   private:
    friend class Metrics;
    explicit Counter(prometheus::Counter* counter) : counter_(counter) {}
    prometheus::Counter* counter_;
  };

  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // The counter of that name; made on first use. `name` follows Prometheus: farhop_things_total.
  Counter counter(const std::string& name, const std::string& help);

  // All counters in the Prometheus text exposition format.
  std::string text() const;

 private:
  std::shared_ptr<prometheus::Registry> registry_;
};

}  // namespace farhop
