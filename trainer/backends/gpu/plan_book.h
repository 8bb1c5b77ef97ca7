// SPDX-License-Identifier: Apache-2.0
// Records which engine computes each graph on one kind of device, and its time. The library's
// heuristics or measurements choose the engine. The book is kept on disk by device and library
// version, so that only the first run of a model on a machine pays for the choice. Thread-safety:
// one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/backends/gpu/driver.h"

namespace penstock::gpu {

/// The engine that computes a graph.
struct PlanChoice {
  EngineChoice engine;
  std::size_t workspace_bytes = 0;
  double microseconds = 0;         ///< 0: not timed
  std::size_t excluded_bytes = 0;  ///< as of the candidates
};

/// The contents of a book on disk.
struct PlanBookContents {
  std::map<std::string, PlanChoice> choices;  ///< by graph and rules
  /// Graphs and rules without an engine, with the workspace limit of the search.
  std::map<std::string, std::size_t> without_engine;
  std::map<std::string, std::vector<EngineChoice>> failed_engines;  ///< by graph
  std::optional<double> copy_rate;
};
/// Parses a book for that device and library version. Empty if the text is damaged (in part or as a
/// whole) or belongs to another book.
PlanBookContents parse_plan_book(std::string_view text, std::string_view device,
                                 std::string_view version);

class PlanBook {
 public:
  /// `directory` holds the book; empty: the book is not kept. A file of another device or version,
  /// or a damaged one, is ignored and overwritten. Calls that add an entry ask `now` and save the
  /// book if the last save was at least two seconds ago.
  PlanBook(const DeviceFacts& facts, std::filesystem::path directory,
           std::function<Time()> now = std::chrono::steady_clock::now);
  PlanBook(const PlanBook&) = delete;
  PlanBook& operator=(const PlanBook&) = delete;
  /// Saves the book.
  ~PlanBook() { save(); }

  /// Empty also if the choice was made under a lower limit, which excluded the first engine.
  std::optional<PlanChoice> find(const DnnGraph& graph, const PlanRules& rules) const;
  void add(const DnnGraph& graph, const PlanRules& rules, const PlanChoice& choice);
  /// True if no engine that can run keeps the rules.
  bool lacks_engine(const DnnGraph& graph, const PlanRules& rules) const;
  void add_lack(const DnnGraph& graph, const PlanRules& rules);
  /// Forgets that the graph lacks an engine, and the graph's failures.
  void forget_lack(const DnnGraph& graph, const PlanRules& rules);
  /// True if an engine cannot be built or run under any rules. find() no longer returns it.
  bool has_failed(const DnnGraph& graph, const EngineChoice& engine) const;
  void add_failure(const DnnGraph& graph, const EngineChoice& engine);
  /// Bytes that a copy inside the device's memory reads and writes in a microsecond.
  std::optional<double> copy_rate() const { return contents_.copy_rate; }
  void set_copy_rate(double bytes_per_microsecond);
  /// Writes the entries added since the last save. A failed write is not an error: the next run
  /// chooses again.
  void save() noexcept;
  /// The number of choices.
  std::size_t size() const noexcept { return contents_.choices.size(); }
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  void save_now_and_then();

  const std::string device_, version_;
  const std::function<Time()> now_;
  std::filesystem::path path_;
  PlanBookContents contents_;
  bool changed_ = false;
  Time saved_;
};

}  // namespace penstock::gpu
