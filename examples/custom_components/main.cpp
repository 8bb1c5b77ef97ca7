// SPDX-License-Identifier: Apache-2.0
// The penstock program with one more component of each kind. This file does not name them:
// CMakeLists.txt adds them.
#include "bench/cli.h"

int main(int argc, char** argv) { return penstock::run_command_line(argc, argv); }
