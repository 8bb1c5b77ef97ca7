// SPDX-License-Identifier: Apache-2.0
// A library that is not Penstock's.

extern "C" int answer() { return 42; }
