// SPDX-License-Identifier: Apache-2.0
// Whether a data set lies in the kernel's page cache when a run begins: made so, and then proved.
// Reading a file that is there costs a copy, reading one that is not costs the disk; without proof
// nobody knows which of the two a run has measured.
//
// Residency is what mincore(2) says of a mapping that nobody touches. The kernel tells the owner of
// a file, whoever may write to it, and root; for others it is unknown. Directories and inodes stay
// in memory in either case.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stop_token>
#include <string>

#include "bench/runner.h"
#include "dataflow/file_list.h"

namespace penstock {

/// What --page-cache asks for.
enum class PageCache : std::uint8_t { as_is, warm, cold };
/// Throws ConfigError for other words than as-is, warm and cold.
PageCache parse_page_cache(const std::string& text);

struct Residency {
  std::size_t files = 0;    ///< of the set
  std::size_t checked = 0;  ///< whose pages were looked at: all, or an even sample of them
  std::size_t unknown = 0;  ///< of `checked`: cannot be opened, or the kernel does not tell
  std::uint64_t pages = 0, resident_pages = 0;  ///< of the others

  /// Of the pages that are known; 0 where none is.
  double percent() const noexcept;
  /// Are so few files unknown that the percentage stands for the set?
  bool is_known() const noexcept;
};

/// Of all files, or in a set of more than twice kFilesChecked of every n-th, at least that many.
constexpr std::size_t kFilesChecked = 2000;
Residency measure_residency(const FileList& files);

/// Reads every file once. Throws ConfigError where the set is larger than `available` bytes, and so
/// would drive itself out. Files that cannot be read are left to the run.
void read_into_page_cache(const FileList& files, std::uint64_t available,
                          const std::stop_token& stop);

/// Writes what is dirty to the disk, and asks the kernel to forget every file's pages.
void drop_from_page_cache(const FileList& files, const std::stop_token& stop);

/// Adds to a result what was asked for, what there was, and whether they agree: facts
/// page_cache_resident_percent_before and _after, page_cache_files and _checked, and
/// page_cache_warm or page_cache_cold, 1 or 0; and notes. Warm is at least 95 % of the set's pages
/// before the first step; cold is at most 5 %, and no file read twice by the run: `examples`
/// samples an epoch; or with direct reads (fact direct_reads) at most 5 % after it.
void add_page_cache(RunResult& result, PageCache wanted, const Residency& before,
                    const Residency& after, std::uint64_t examples);

/// Both ends of one run.
class PageCacheOfRun {
 public:
  /// `files` is null, or outlives this object: what the feeder reads while it runs.
  PageCacheOfRun(PageCache wanted, const FileList* files) : wanted_(wanted), files_(files) {}

  /// Before anything is read. Throws ConfigError as read_into_page_cache does.
  void prepare(const std::stop_token& stop);
  /// After the run.
  void report(RunResult& result, std::uint64_t examples) const;

 private:
  const PageCache wanted_;
  const FileList* const files_;
  Residency before_;
};

}  // namespace penstock
