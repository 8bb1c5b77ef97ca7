// SPDX-License-Identifier: Apache-2.0
// Puts a data set into the kernel's page cache or out of it before a run, and verifies the result.
// Reading a cached file costs a copy, reading another file costs the disk. Without verification, a
// user cannot know which of the two a run has measured.
//
// Residency comes from mincore(2) on a mapping that is never touched. The kernel reports it to the
// owner of a file, to users with write permission, and to root; for other users it is unknown.
// Directories and inodes stay in memory in any case.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <string>

#include "bench/run/runner.h"
#include "dataflow/file_list.h"

namespace penstock {

/// The values of --page-cache.
enum class PageCache : std::uint8_t { as_is, warm, cold };
/// Throws ConfigError unless `text` is as-is, warm or cold.
PageCache parse_page_cache(const std::string& text);

struct Residency {
  std::size_t files = 0;    ///< in the set
  std::size_t checked = 0;  ///< files whose pages were checked: all, or an even sample
  std::size_t unknown = 0;  ///< of `checked`: not readable, or residency not reported
  std::uint64_t pages = 0, resident_pages = 0;  ///< of the checked files with known pages

  /// Resident share of the known pages; 0 if none is known.
  double percent() const noexcept;
  /// True if so few files are unknown that the percentage represents the set.
  bool is_known() const noexcept;
};

/// Checks all files. If a set has more than twice kFilesChecked files, checks every n-th file, at
/// least kFilesChecked of them.
constexpr std::size_t kFilesChecked = 2000;
Residency measure_residency(const FileList& files);

/// Reads every file once. Throws ConfigError if the set is larger than `available` bytes, because
/// it would then evict itself. Skips unreadable files, which the run reports.
void read_into_page_cache(const FileList& files, std::uint64_t available,
                          const std::stop_token& stop);

/// Writes dirty pages to the disk, and asks the kernel to drop the pages of every file.
void drop_from_page_cache(const FileList& files, const std::stop_token& stop);

/// Adds to a result what --page-cache asked for, what was found, and whether they agree: the facts
/// page_cache_resident_percent_before and _after, page_cache_files and _checked, and
/// page_cache_warm or page_cache_cold (1 or 0); and notes. Warm: at least 95 % of the set's pages
/// are resident before the first step, and the run does not use direct reads. Cold: at most 5 %
/// are, and the run reads no file twice (`examples` samples are an epoch) or uses direct reads
/// (fact direct_reads) with at most 5 % resident afterwards.
void add_page_cache(RunResult& result, PageCache mode, const Residency& before,
                    const Residency& after, std::uint64_t examples);

/// Prepares the page cache before a run and reports on it afterwards.
class PageCacheOfRun {
 public:
  /// `files` lists what the feeder reads during the run; null, or must outlive this object.
  PageCacheOfRun(PageCache mode, const FileList* files) : mode_(mode), files_(files) {}

  /// Call before the run reads anything. Throws ConfigError as read_into_page_cache does.
  void prepare(const std::stop_token& stop);
  /// Call after the run.
  void report(RunResult& result, std::uint64_t examples) const;

 private:
  const PageCache mode_;
  const FileList* const files_;
  Residency before_;
};

}  // namespace penstock
