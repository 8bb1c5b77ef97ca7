// SPDX-License-Identifier: Apache-2.0
// The Program of streams that cannot record work: each launch enqueues the work again.
#pragma once

#include <functional>
#include <utility>

#include "dataflow/device.h"

namespace penstock {

class Closure final : public Program {
 public:
  explicit Closure(std::function<void()> enqueue) : enqueue_(std::move(enqueue)) {}
  void launch(Stream&) override { enqueue_(); }

 private:
  const std::function<void()> enqueue_;
};

}  // namespace penstock
