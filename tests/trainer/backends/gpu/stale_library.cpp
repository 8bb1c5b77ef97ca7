// SPDX-License-Identifier: Apache-2.0
// A libpenstock_cuda.so of another revision: whatever else it has must not be used.

extern "C" const char* penstock_cuda_revision() { return "of-last-week"; }
