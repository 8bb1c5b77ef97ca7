// SPDX-License-Identifier: Apache-2.0
// How tests choose what the fake CUDA libraries play. A program that links them calls these
// functions; another process is told by the environment variable PENSTOCK_FAKE_CUDA.
//
// Settings are `key=value`, separated by commas:
//   devices=1          GPUs
//   capability=90      compute capability of each
//   memory_mib=1024    of each
//   driver=13000       CUDA version that the GPU's driver supports
//   timing=late        or at_once, shuffled: when work runs (host_streams.h)
//   seed=1             of timing=shuffled
//   dnn=91900          version of cuDNN
//   refuse=ENGINE      no plan of that engine can be made (engines: cudnn.cpp)
//   break=ENGINE       plans of that engine fail when they are executed
//   fail=CALL:N:CODE   the Nth call of that function returns CODE instead; may be repeated
#pragma once

extern "C" {
/// Begins anew on an idle machine: all streams, events and memory must have been given back.
/// Throws std::invalid_argument for a setting that is none.
void fake_cuda_restart(const char* settings);
/// How often a function was called since then.
int fake_cuda_calls(const char* function);
/// Accesses of streams to the same memory that nothing orders, printed to standard error.
int fake_cuda_races();
}
