// SPDX-License-Identifier: Apache-2.0
#include "dataflow/mark.h"

#include <unistd.h>

namespace penstock {

void Mark::begin() noexcept {
  if (marks_->profiler_ != nullptr) marks_->profiler_->push(name_);
  kept_ = marks_->log_ != nullptr && marks_->log_->is_open();
  if (kept_) begin_ = marks_->log_->now();
}

void Mark::end() noexcept {
  if (kept_) {
    thread_local const std::int32_t thread = gettid();
    SpanLog& log = *marks_->log_;
    log.add({name_, marks_->work_, marks_->rank_, thread, begin_, log.now()});
  }
  if (marks_->profiler_ != nullptr) marks_->profiler_->pop();
}

}  // namespace penstock
