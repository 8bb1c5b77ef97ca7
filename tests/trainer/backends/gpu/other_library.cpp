// SPDX-License-Identifier: Apache-2.0
// Two libraries that the program must not use: a libpenstock_cuda.so of another revision, and one
// that is not part of Penstock.
#if defined(PENSTOCK_STALE)
extern "C" const char* penstock_cuda_revision() { return "of-last-week"; }
#else
extern "C" int answer() { return 42; }
#endif
