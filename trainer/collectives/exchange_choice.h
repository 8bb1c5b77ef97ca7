// SPDX-License-Identifier: Apache-2.0
// The choice among the ways in which ranks can exchange.
#pragma once

#include <cstdint>

#include "dataflow/probe.h"
#include "trainer/collectives/all_reduce.h"
#include "trainer/wire_format.h"

namespace penstock::collectives {

/// shared_memory: for ranks on one host. mpi: MPI's own nonblocking all-reduce, so that other ranks
/// are monitored meanwhile; ranks that meet over TCP use links instead. mpi_blocking: the blocking
/// call, which MPI libraries tune, for comparison. links: one of Penstock's algorithms, in
/// messages. fastest: shared_memory if all ranks are on one host; else links.
enum class ExchangeMethod : std::uint8_t { fastest, shared_memory, mpi, mpi_blocking, links };

/// Equal on all ranks.
struct ExchangeChoice {
  ExchangeMethod method = ExchangeMethod::fastest;
  AllReducePlan plan{};               ///< for links; empty: tree and ring, by size
  std::int32_t local_ranks = 1;       ///< ranks per group in hierarchical algorithms
  WireFormat wire = WireFormat::f32;  ///< for all_reduce_sum; other calls move f32
  Counter* nonfinite = nullptr;       ///< counts sums that are not finite with a 16-bit wire
};

}  // namespace penstock::collectives
