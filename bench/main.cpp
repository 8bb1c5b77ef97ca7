// SPDX-License-Identifier: Apache-2.0
#include "bench/cli.h"

int main(int argc, char** argv) { return penstock::run_command_line(argc, argv); }
