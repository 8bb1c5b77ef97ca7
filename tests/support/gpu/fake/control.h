// SPDX-License-Identifier: Apache-2.0
// How tests configure the fake CUDA libraries. A program that links to them calls these functions;
// the environment variable PENSTOCK_FAKE_CUDA configures another process.
//
// Settings are `key=value`, separated by commas:
//   devices=1          number of GPUs
//   capability=90      compute capability of each GPU
//   memory_mib=1024    memory of each GPU
//   driver=13000       CUDA version that the GPU's driver supports
//   timing=late        or at_once, shuffled: when work runs (host_streams.h)
//   seed=1             of timing=shuffled
//   dnn=91900          version of cuDNN
//   refuse=ENGINE      no plan of that engine can be made (engines: cudnn.cpp)
//   break=ENGINE       plans of that engine fail when they are executed
//   fail=CALL:N:CODE   the Nth call of that function returns CODE instead; may be repeated
#pragma once

extern "C" {
/// Restarts with an idle machine. All streams, events and memory must have been freed. Throws
/// std::invalid_argument for an unknown or wrong setting.
void fake_cuda_restart(const char* settings);
/// The number of calls of a function since the restart.
int fake_cuda_calls(const char* function);
/// The number of conflicting accesses of streams without an order between them. Prints them to
/// standard error.
int fake_cuda_races();
}
