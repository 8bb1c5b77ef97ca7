// SPDX-License-Identifier: Apache-2.0
// A libpenstock_cuda.so of another revision. The program must not use any of its functions.

extern "C" const char* penstock_cuda_revision() { return "of-last-week"; }
