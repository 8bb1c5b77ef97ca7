// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "dataflow/error.h"

namespace penstock::gpu {
namespace {

using Json = nlohmann::json;

/// Two ranks that share a GPU; {0, 0} if there are none.
std::pair<std::size_t, std::size_t> sharing_ranks(std::span<const std::int32_t> gpus) {
  for (std::size_t rank = 1; rank < gpus.size(); ++rank) {
    const auto earlier = gpus.begin() + static_cast<std::ptrdiff_t>(rank);
    const auto other = std::find(gpus.begin(), earlier, gpus[rank]);
    if (other != earlier) return {static_cast<std::size_t>(other - gpus.begin()), rank};
  }
  return {0, 0};
}

/// Makes all GPUs able to access each other's memory. Returns the reason if they cannot, else an
/// empty string.
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
    throw ConfigError("--num-gpus is {}: at most {} ranks can exchange by copies{}", gpus.size(),
                      kMaxRanks, instead);
  }
  const std::string reason = why_out_of_reach(gpus, drivers);
  if (!reason.empty()) {
    throw Unavailable("ranks cannot exchange by copies: {}{}", reason, instead);
  }
  return {.exchange = Exchange::copies,
          .note = fmt::format("ranks exchange by built-in sums and copies ({})", std::move(why))};
}

constexpr std::string_view kThroughNccl = "ranks exchange through NCCL, with one GPU per rank";

ExchangeChoice choose_nccl(DriverLibrary& library) {
  return {.exchange = Exchange::nccl,
          .id = library.make_communicator_id(),
          .note = std::string(kThroughNccl)};
}

ExchangeChoice choose_host(std::string_view why) {
  return {.exchange = Exchange::host,
          .note = fmt::format("ranks exchange through the host's memory ({})", why)};
}

// ---- among processes ------------------------------------------------------

/// The data that each process sends to the others, as JSON.
struct Offer {
  std::string machine;             ///< equal for processes that could share a GPU
  std::vector<std::string> buses;  ///< the GPUs of its ranks
  std::string id{};                ///< hexadecimal
  std::string reason{};            ///< why there is no id; empty if there is one
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Offer, machine, buses, id, reason)

/// The kernel's boot id. It is new at each boot and the same in all containers of a machine.
std::string this_machine() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id;
}

std::string to_hex(const CommunicatorId& id) {
  std::string text;
  for (const std::byte byte : id.bytes) text += fmt::format("{:02x}", std::to_integer<int>(byte));
  return text;
}

CommunicatorId from_hex(std::string_view text) {
  CommunicatorId id;
  PENSTOCK_ASSERT(text.size() == 2 * id.bytes.size());
  for (std::size_t i = 0; i < id.bytes.size(); ++i) {
    unsigned value = 0;
    std::from_chars(text.data() + 2 * i, text.data() + 2 * i + 2, value, 16);
    id.bytes[i] = static_cast<std::byte>(value);
  }
  return id;
}

/// Every process makes an id, so that each knows whether it can; the id of the first process is
/// used.
Offer make_offer(std::span<const std::string> buses, DriverLibrary& library) {
  Offer offer{.machine = this_machine(), .buses = {buses.begin(), buses.end()}};
  try {
    offer.id = to_hex(library.make_communicator_id());
  } catch (const Unavailable& error) {
    offer.reason = error.what();
  }
  return offer;
}

std::vector<Offer> exchange_offers(const Offer& mine, const ProcessRanks& ranks) {
  std::vector<Offer> offers;
  for (const std::string& other : ranks.all_gather(Json(mine).dump())) {
    offers.push_back(Json::parse(other).get<Offer>());
  }
  return offers;
}

/// The reason why NCCL cannot connect all ranks; empty if it can.
std::string why_not_nccl(std::span<const Offer> offers) {
  std::map<std::pair<std::string, std::string>, std::size_t> rank_of;
  std::size_t rank = 0;
  for (std::size_t process = 0; process < offers.size(); ++process) {
    const Offer& offer = offers[process];
    if (!offer.reason.empty()) return fmt::format("process {}: {}", process, offer.reason);
    for (const std::string& bus : offer.buses) {
      const auto [other, is_first] = rank_of.try_emplace({offer.machine, bus}, rank);
      if (!is_first) {
        return fmt::format("ranks {} and {} share a GPU, {}, which NCCL refuses", other->second,
                           rank, bus);
      }
      ++rank;
    }
  }
  return {};
}

}  // namespace

Exchange parse_exchange(std::string_view text) {
  if (text == "auto") return Exchange::automatic;
  if (text == "copies") return Exchange::copies;
  if (text == "nccl") return Exchange::nccl;
  if (text == "host") return Exchange::host;
  throw ConfigError("gpu:exchange is '{}'; expected auto, copies, nccl or host", text);
}

Exchange requested_exchange(Exchange option, const ExchangeSpec& spec) {
  if (!spec.nccl || option == Exchange::nccl) return option;
  if (option == Exchange::automatic) return Exchange::nccl;
  throw ConfigError("--all-reduce-spec is nccl, and gpu:exchange is {}; leave one out",
                    option == Exchange::copies ? "copies" : "host");
}

ExchangeChoice choose_exchange(Exchange requested, std::span<const std::int32_t> gpus,
                               std::span<Driver* const> drivers, DriverLibrary& library) {
  if (gpus.size() == 1) return {};
  if (requested == Exchange::host) return choose_host("gpu:exchange=host");
  const auto [first, second] = sharing_ranks(gpus);
  const bool shares = first != second;
  if (requested == Exchange::nccl) {
    if (!shares) return choose_nccl(library);
    throw ConfigError(
        "NCCL is asked for, but ranks {} and {} share GPU {}, which NCCL refuses: use --num-gpus "
        "with one rank a GPU, or gpu:exchange=copies",
        first, second, gpus[first]);
  }
  if (requested == Exchange::copies) {
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

ExchangeChoice choose_process_exchange(Exchange requested, std::span<const std::string> buses,
                                       const ProcessRanks& ranks, DriverLibrary& library) {
  if (requested == Exchange::copies) {
    throw ConfigError(
        "gpu:exchange is copies, which is for ranks of one process; use auto, nccl or host, or "
        "start one process with more --num-gpus");
  }
  if (requested == Exchange::host) return choose_host("gpu:exchange=host");
  const std::vector<Offer> offers = exchange_offers(make_offer(buses, library), ranks);
  const std::string reason = why_not_nccl(offers);
  if (reason.empty()) {
    return {.exchange = Exchange::nccl,
            .id = from_hex(offers.front().id),
            .note = std::string(kThroughNccl)};
  }
  if (requested == Exchange::automatic) return choose_host(reason);
  throw Unavailable("NCCL is asked for, and {}; give each rank a GPU, or use gpu:exchange=host",
                    reason);
}

}  // namespace penstock::gpu
