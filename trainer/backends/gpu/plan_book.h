// SPDX-License-Identifier: Apache-2.0
// Which engine computes each graph on one kind of device, and how long it takes there: chosen by
// the library's heuristics or by timing them, and kept on disk by device and version, so that only
// the first run of a model on a machine pays for it. One thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "trainer/backends/gpu/driver.h"

namespace penstock::gpu {

/// What was found out about a graph.
struct PlanChoice {
  EngineChoice engine;
  std::size_t workspace_bytes = 0;
  double microseconds = 0;  ///< 0: not timed
};

/// What a book on disk has.
struct PlanBookContents {
  std::map<std::string, PlanChoice> choices;  ///< by graph and rules
  std::optional<double> copy_rate;
};
/// Of a book for that device and version of the library; nothing where the text is damaged, in part
/// or as a whole, or is another book.
PlanBookContents parse_plan_book(std::string_view text, std::string_view device,
                                 std::string_view version);

class PlanBook {
 public:
  /// `directory` is where choices are kept; empty: nowhere. A file of another device or version, or
  /// one that is damaged, counts as not there and is written anew.
  PlanBook(const DeviceFacts& facts, std::filesystem::path directory);

  std::optional<PlanChoice> find(const DnnGraph& graph, const PlanRules& rules) const;
  void add(const DnnGraph& graph, const PlanRules& rules, const PlanChoice& choice);
  /// Bytes that a copy within the device's memory reads and writes in a microsecond.
  std::optional<double> copy_rate() const { return copy_rate_; }
  void set_copy_rate(double bytes_per_microsecond);
  /// Writes what was added since; a failure to write is no error: the next run chooses again.
  void save() noexcept;
  /// For a choice that cannot be built.
  void remove(const DnnGraph& graph, const PlanRules& rules);
  std::size_t size() const noexcept { return choices_.size(); }
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  void load();

  const std::string device_, version_;
  std::filesystem::path path_;
  std::map<std::string, PlanChoice> choices_;
  std::optional<double> copy_rate_;
  bool changed_ = false;
};

/// The best engine for a graph, from the book or by asking and timing; enters it in the book.
/// Nothing where no engine keeps the rules.
std::optional<PlanChoice> find_plan(const DnnGraph& graph, const PlanRules& rules, Driver& driver,
                                    PlanBook& book);
/// The same, but throws Unavailable where there is none.
PlanChoice choose_plan(const DnnGraph& graph, const PlanRules& rules, Driver& driver,
                       PlanBook& book);

/// The plan of that choice. A book's choice that the library cannot build is chosen anew.
std::unique_ptr<DnnPlan> make_plan(const DnnGraph& graph, const PlanRules& rules, Driver& driver,
                                   PlanBook& book);

}  // namespace penstock::gpu
