// SPDX-License-Identifier: Apache-2.0
// What goes wrong inside the library, with the code that its callers in C get.
#pragma once

#include <stdexcept>
#include <string>

#include "producer/penstock_producer.h"

namespace penstock::producer {

class Failure : public std::runtime_error {
 public:
  Failure(int code, const std::string& text) : std::runtime_error(text), code_(code) {}
  int code() const noexcept { return code_; }

 private:
  int code_;
};

/// An argument or option is wrong, or the call comes too late.
inline Failure invalid(const std::string& text) { return Failure(PENSTOCK_PRODUCER_INVALID, text); }

}  // namespace penstock::producer
