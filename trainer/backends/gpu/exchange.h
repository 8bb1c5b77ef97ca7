// SPDX-License-Identifier: Apache-2.0
// By which way ranks exchange: sums and copies of our own, NCCL, or through their hosts' memory.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "trainer/backend.h"
#include "trainer/backends/gpu/driver.h"

namespace penstock::gpu {

/// What the user wants. automatic: NCCL where each rank has a GPU of its own and NCCL is there;
/// otherwise copies in one process, and the host's memory among several.
enum class Exchange : std::uint8_t { automatic, copies, nccl, host };

/// Throws ConfigError for a word that is none.
Exchange parse_exchange(std::string_view text);
/// What gpu:exchange and --all-reduce-spec ask for. Throws ConfigError where they differ.
Exchange wanted_exchange(Exchange option, const ExchangeSpec& spec);

struct ExchangeChoice {
  Exchange exchange = Exchange::copies;  ///< not automatic
  CommunicatorId id{};                   ///< of the ranks, where NCCL exchanges
  std::string note{};                    ///< which one, and why
};

/// For ranks on these GPUs; `drivers` are theirs, and reach each other's memory afterwards where
/// our own sums exchange. Throws ConfigError for what NCCL refuses or for too many ranks,
/// Unavailable for what this machine lacks.
ExchangeChoice choose_exchange(Exchange wanted, std::span<const std::int32_t> gpus,
                               std::span<Driver* const> drivers, DriverLibrary& library);

/// The same among processes, for those of this process, whose GPUs have `buses` in the order of its
/// ranks: all processes call it together, and choose alike. Copies are not among the choices.
ExchangeChoice choose_process_exchange(Exchange wanted, std::span<const std::string> buses,
                                       const ProcessRanks& ranks, DriverLibrary& library);

}  // namespace penstock::gpu
