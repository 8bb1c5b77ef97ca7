// SPDX-License-Identifier: Apache-2.0
// The plain executor as a backend for tests; it is not in the table. Contract suites must accept it
// on every machine before they judge other backends. Its element order is the reverse of the plain
// one, with zeros between parameters, so that suites cannot rely on any order. fp32 and bf16 round
// activations, their gradients and the operands of products to that type; sums are f64.
#pragma once

#include "trainer/backend.h"

namespace penstock {

extern const BackendEntry plain_backend;

}  // namespace penstock
