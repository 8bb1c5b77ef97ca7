// SPDX-License-Identifier: Apache-2.0
// A library that is not part of Penstock.

extern "C" int answer() { return 42; }
