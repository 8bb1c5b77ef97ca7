// SPDX-License-Identifier: Apache-2.0
// What was found out about exchanges, as figures, as a table and as JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "bench/exchange/exchange_run.h"
#include "bench/statistics.h"

namespace penstock {

/// All that a reader has to know about the numbers.
struct ExchangeReport {
  std::string command{}, model{};
  ExchangePlan plan{};
  std::string ranks_are = "threads";  ///< or processes
  std::int32_t local_ranks = 1;
  std::vector<WayTimes> times{};                     ///< by way
  std::vector<std::optional<ExchangeCost>> costs{};  ///< by way; none: without messages
  bool stopped = false;                              ///< before all iterations were done
  std::vector<std::string> notes{};

  double bytes() const;  ///< of all gradients of one rank
};

/// nccl-tests' two figures, for S bytes, n ranks and the median of t: algbw = S / t, and busbw =
/// algbw * 2 (n - 1) / n, which a ring would move over each of its links. 1 GB is 1e9 bytes.
struct ExchangeFigures {
  Spread ms{};
  double algbw_gb_per_s = 0, busbw_gb_per_s = 0;
};
/// At least one time.
ExchangeFigures exchange_figures(const std::vector<double>& seconds, double bytes,
                                 std::int32_t ranks);

/// How much faster a way is than another: the other's time over its own, in each iteration. None
/// where there is no iteration of both.
std::optional<Spread> speed_against(const WayTimes& way, const WayTimes& other);

void write_exchange_text(const ExchangeReport& report, std::ostream& out);
nlohmann::ordered_json to_json(const ExchangeReport& report);

}  // namespace penstock
