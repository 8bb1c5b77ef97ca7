// SPDX-License-Identifier: Apache-2.0
// Chooses how ranks exchange gradients: with built-in copies and sums, with NCCL, or through the
// memory of their hosts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "trainer/backend.h"
#include "trainer/backends/gpu/driver.h"

namespace penstock::gpu {

/// The exchange that the user asks for. automatic: NCCL if it is available and each rank has its
/// own GPU; otherwise copies within one process, and host memory among several processes.
enum class Exchange : std::uint8_t { automatic, copies, nccl, host };

/// Throws ConfigError for an unknown word.
Exchange parse_exchange(std::string_view text);
/// The exchange that gpu:exchange and --all-reduce-spec ask for. Throws ConfigError if the two
/// differ.
Exchange requested_exchange(Exchange option, const ExchangeSpec& spec);

struct ExchangeChoice {
  Exchange exchange = Exchange::copies;  ///< never automatic
  CommunicatorId id{};                   ///< the id of the ranks, if NCCL exchanges
  std::string note{};                    ///< which exchange it is, and why
};

/// Chooses for ranks on these GPUs; `drivers` are the ranks' drivers. If the choice is copies, the
/// drivers can access each other's memory afterwards. Throws ConfigError for a setup that NCCL
/// refuses or for too many ranks, and Unavailable for anything that this machine lacks.
ExchangeChoice choose_exchange(Exchange requested, std::span<const std::int32_t> gpus,
                               std::span<Driver* const> drivers, DriverLibrary& library);

/// Chooses among several processes, for the ranks of this process; `buses` are their GPUs in the
/// order of the ranks. All processes call it together and make the same choice. Copies are never
/// chosen.
ExchangeChoice choose_process_exchange(Exchange requested, std::span<const std::string> buses,
                                       const ProcessRanks& ranks, DriverLibrary& library);

}  // namespace penstock::gpu
