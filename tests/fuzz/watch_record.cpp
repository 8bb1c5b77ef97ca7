// SPDX-License-Identifier: Apache-2.0
// Records of `penstock watch`, and lines that a watched process wrote: steps whose figures are
// possible, or an error. A text with a key `watch` is a record.
#include "bench/watch/watch_record.h"

#include <sstream>

#include "bench/watch/watch_summary.h"
#include "tests/fuzz/target.h"

namespace penstock::fuzz {

std::size_t watch_record(std::span<const std::byte> input) {
  const std::string_view text = as_text(input);
  watch::WatchRecord record;
  if (text.find("\"watch\"") != std::string_view::npos) {
    record = watch::parse_record(text);
  } else {
    watch::add_line(text, record.ranks.emplace_back());
  }
  std::ostringstream sink;
  document::write_text(watch::document_of(record), sink);
  for (const watch::Rank& rank : record.ranks) {
    for (const watch::Loop& loop : rank.loops) {
      const watch::LoopSummary sum = watch::summary_of(loop);
      ensure(sum.waited_percent >= 0 && sum.waited_percent <= 100 + 1e-9, "no share");
      ensure(sum.wait_ms_p50 <= sum.wait_ms_p95 + 1e-9 && sum.wait_ms_p99 <= sum.wait_ms_max + 1e-9,
             "percentiles out of order");
    }
  }
  return 1;
}

}  // namespace penstock::fuzz
