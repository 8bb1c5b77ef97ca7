// SPDX-License-Identifier: Apache-2.0
// Reports the results of exchange measurements, as figures, as a table and as JSON.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "bench/record/statistics.h"
#include "bench/scaling/exchange/exchange_run.h"

namespace penstock::scaling {

/// Everything that a reader needs to know about the numbers.
struct ExchangeReport {
  std::string command{}, model{};
  ExchangePlan plan{};
  std::string ranks_are = "threads";  ///< or processes
  std::int32_t local_ranks = 1;
  std::vector<WayTimes> times{};  ///< by way
  std::vector<std::optional<collectives::ExchangeCost>>
      costs{};           ///< by way; none: it sends no messages
  bool stopped = false;  ///< before all iterations were complete
  std::vector<std::string> notes{};

  double bytes() const;  ///< all gradients of one rank
};

/// The two figures of nccl-tests, for S bytes, n ranks and the median of t: algbw = S / t, and
/// busbw = algbw * 2 (n - 1) / n, which a ring would move over each of its links. 1 GB is 1e9
/// bytes.
struct ExchangeFigures {
  Spread ms{};
  double algbw_gb_per_s = 0, busbw_gb_per_s = 0;
};
/// Needs at least one time.
ExchangeFigures exchange_figures(const std::vector<double>& seconds, double bytes,
                                 std::int32_t ranks);

void write_exchange_text(const ExchangeReport& report, std::ostream& out);
nlohmann::ordered_json to_json(const ExchangeReport& report);

}  // namespace penstock::scaling
