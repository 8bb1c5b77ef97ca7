// SPDX-License-Identifier: Apache-2.0
// Errors inside the library, with the code that callers in C get.
#pragma once

#include <stdexcept>
#include <string>

#include "feeders/remote/producer/penstock_producer.h"

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
