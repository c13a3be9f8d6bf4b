#include "base/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace farhop {

void Metrics::Counter::add(double amount) { counter_->Increment(amount); }
double Metrics::Counter::value() const { return counter_->Value(); }

Metrics::Metrics()
    : registry_(std::make_shared<prometheus::Registry>(prometheus::Registry::InsertBehavior::Merge)) {}
Metrics::~Metrics() = default;

Metrics::Counter Metrics::counter(const std::string& name, const std::string& help) {
  auto& family = prometheus::BuildCounter().Name(name).Help(help).Register(*registry_);
  return Counter(&family.Add({}));
}

std::string Metrics::text() const { return prometheus::TextSerializer().Serialize(registry_->Collect()); }

}  // namespace farhop
