// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "dataflow/error.h"

namespace penstock::gpu {
namespace {

/// Two ranks on one GPU; none: {0, 0}.
std::pair<std::size_t, std::size_t> sharing_ranks(std::span<const std::int32_t> gpus) {
  for (std::size_t rank = 1; rank < gpus.size(); ++rank) {
    const auto earlier = gpus.begin() + static_cast<std::ptrdiff_t>(rank);
    const auto other = std::find(gpus.begin(), earlier, gpus[rank]);
    if (other != earlier) return {static_cast<std::size_t>(other - gpus.begin()), rank};
  }
  return {0, 0};
}

/// Empty where all GPUs reach each other's memory, from here on.
std::string why_out_of_reach(std::span<const std::int32_t> gpus, std::span<Driver* const> drivers) {
  for (std::size_t rank = 0; rank < gpus.size(); ++rank) {
    for (const std::int32_t other : gpus) {
      if (drivers[rank]->reach(other)) continue;
      return fmt::format("GPU {} cannot reach the memory of GPU {}", gpus[rank], other);
    }
  }
  return {};
}

ExchangeChoice choose_copies(std::string why, std::span<const std::int32_t> gpus,
                             std::span<Driver* const> drivers, const std::string& instead) {
  if (gpus.size() > static_cast<std::size_t>(kMaxRanks)) {
    throw ConfigError(
        fmt::format("--num-gpus is {}: ranks that exchange by copies are {} at most{}", gpus.size(),
                    kMaxRanks, instead));
  }
  const std::string reason = why_out_of_reach(gpus, drivers);
  if (!reason.empty()) {
    throw Unavailable(fmt::format("ranks cannot exchange by copies: {}{}", reason, instead));
  }
  return {{}, fmt::format("ranks exchange by our own sums and copies ({})", std::move(why))};
}

ExchangeChoice choose_nccl(DriverLibrary& library) {
  return {library.make_communicator_id(), "ranks exchange through NCCL, with a GPU each"};
}

}  // namespace

Exchange parse_exchange(std::string_view text) {
  if (text == "auto") return Exchange::automatic;
  if (text == "copies") return Exchange::copies;
  if (text == "nccl") return Exchange::nccl;
  throw ConfigError(fmt::format("gpu:exchange is '{}'; expected auto, copies or nccl", text));
}

ExchangeChoice choose_exchange(Exchange wanted, std::span<const std::int32_t> gpus,
                               std::span<Driver* const> drivers, DriverLibrary& library) {
  if (gpus.size() == 1) return {};
  const auto [first, second] = sharing_ranks(gpus);
  const bool shares = first != second;
  if (wanted == Exchange::nccl) {
    if (!shares) return choose_nccl(library);
    throw ConfigError(fmt::format(
        "gpu:exchange is nccl, but ranks {} and {} share GPU {}, which NCCL refuses: use "
        "--num-gpus with one rank a GPU, or gpu:exchange=copies",
        first, second, gpus[first]));
  }
  if (wanted == Exchange::copies) {
    return choose_copies("gpu:exchange=copies", gpus, drivers,
                         shares ? "; use fewer ranks" : "; use gpu:exchange=nccl");
  }
  if (shares) {
    return choose_copies("NCCL refuses ranks that share a GPU", gpus, drivers,
                         "; use one rank a GPU, and NCCL does it");
  }
  try {
    return choose_nccl(library);
  } catch (const Unavailable& error) {
    return choose_copies(error.what(), gpus, drivers, fmt::format("; and {}", error.what()));
  }
}

}  // namespace penstock::gpu
