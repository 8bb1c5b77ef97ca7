// SPDX-License-Identifier: Apache-2.0
// Which engine computes each graph on one kind of device, and how long it takes there: chosen by
// the library's heuristics or by timing them, and kept on disk by device and version, so that only
// the first run of a model on a machine pays for it. One thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
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
  double microseconds = 0;  ///< 0: not timed
};

/// What a book on disk has.
struct PlanBookContents {
  std::map<std::string, PlanChoice> choices;  ///< by graph and rules
  /// Graphs and rules without an engine, and the workspace limit of the search.
  std::map<std::string, std::size_t> without_engine;
  std::map<std::string, std::vector<EngineChoice>> failed_engines;  ///< by graph
  std::optional<double> copy_rate;
};
/// Of a book for that device and version of the library; nothing where the text is damaged, in part
/// or as a whole, or is another book.
PlanBookContents parse_plan_book(std::string_view text, std::string_view device,
                                 std::string_view version);

class PlanBook {
 public:
  /// `directory` is where the book is kept; empty: nowhere. A file of another device or version, or
  /// one that is damaged, counts as not there and is written anew. `now` is asked by the calls that
  /// add something, which save the book if the last time was two seconds ago.
  PlanBook(const DeviceFacts& facts, std::filesystem::path directory,
           std::function<Time()> now = std::chrono::steady_clock::now);
  PlanBook(const PlanBook&) = delete;
  PlanBook& operator=(const PlanBook&) = delete;
  /// Saves.
  ~PlanBook() { save(); }

  std::optional<PlanChoice> find(const DnnGraph& graph, const PlanRules& rules) const;
  void add(const DnnGraph& graph, const PlanRules& rules, const PlanChoice& choice);
  /// That no engine that can run keeps the rules.
  bool lacks_engine(const DnnGraph& graph, const PlanRules& rules) const;
  void add_lack(const DnnGraph& graph, const PlanRules& rules);
  /// Forgets that, and the graph's failures.
  void forget_lack(const DnnGraph& graph, const PlanRules& rules);
  /// That an engine cannot be built or run, whatever the rules; find() gives it no more.
  bool has_failed(const DnnGraph& graph, const EngineChoice& engine) const;
  void add_failure(const DnnGraph& graph, const EngineChoice& engine);
  /// Bytes that a copy within the device's memory reads and writes in a microsecond.
  std::optional<double> copy_rate() const { return contents_.copy_rate; }
  void set_copy_rate(double bytes_per_microsecond);
  /// Writes what was added since; a failure to write is no error: the next run chooses again.
  void save() noexcept;
  /// Choices.
  std::size_t size() const noexcept { return contents_.choices.size(); }
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  void load();
  void save_now_and_then();

  const std::string device_, version_;
  const std::function<Time()> now_;
  std::filesystem::path path_;
  PlanBookContents contents_;
  bool changed_ = false;
  Time saved_;
};

/// The best engine for a graph, from the book or by asking and timing; enters in the book what it
/// finds. Nothing if no engine that can run keeps the rules. Throws DeviceError if all that are
/// timed fail, and DeviceLost.
std::optional<PlanChoice> find_plan(const DnnGraph& graph, const PlanRules& rules, Driver& driver,
                                    PlanBook& book);

/// The plan of that choice, or of another if the library cannot build it. Throws Unavailable if
/// there is none, DeviceError if all fail, and DeviceLost.
std::unique_ptr<DnnPlan> make_plan(const DnnGraph& graph, const PlanRules& rules, Driver& driver,
                                   PlanBook& book);

}  // namespace penstock::gpu
