// SPDX-License-Identifier: Apache-2.0
#include "bench/run/page_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/machine/input_file.h"
#include "dataflow/machine/memory_limit.h"

namespace penstock {
namespace {

constexpr double kWarmPercent = 95, kColdPercent = 5;
/// If a larger share of files is unknown, the set is unknown.
constexpr double kUnknownShare = 0.05;
/// Pages in per-processor lists are not dropped the first time, so dropping is repeated.
constexpr int kDrops = 3;
/// Bytes per read. A stop request waits for one read at most.
constexpr std::size_t kPiece = std::size_t{1} << 20;
/// Reading more than this takes long, so a message tells the user.
constexpr std::uint64_t kWorthSaying = std::uint64_t{1} << 30;

/// mincore(2) reports "resident" for all pages if the user lacks permission to know.
bool may_know(const std::string& path, const InputFile& file) {
  const uid_t user = ::geteuid();
  struct stat status {};
  return user == 0 || (::fstat(file.descriptor(), &status) == 0 && status.st_uid == user) ||
         ::access(path.c_str(), W_OK) == 0;
}

/// Adds the pages of one file. Returns false if they are unknown.
bool add_pages(const std::string& path, std::vector<unsigned char>& flags, Residency& residency) {
  const InputFile file(path.c_str());
  if (!file || !may_know(path, file)) return false;
  if (file.size() == 0) return true;
  void* const address = ::mmap(nullptr, file.size(), PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (address == MAP_FAILED) return false;
  const auto page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t pages = (file.size() + page_bytes - 1) / page_bytes;
  flags.resize(std::max(flags.size(), pages));
  const bool told = ::mincore(address, file.size(), flags.data()) == 0;
  ::munmap(address, file.size());
  if (!told) return false;
  residency.pages += pages;
  for (std::size_t i = 0; i < pages; ++i) residency.resident_pages += flags[i] & 1U;
  return true;
}

std::uint64_t bytes_of(const FileList& files, const std::stop_token& stop) {
  std::uint64_t bytes = 0;
  struct stat status {};
  for (std::size_t i = 0; i < files.size() && !stop.stop_requested(); ++i) {
    if (::stat(files.path(i).c_str(), &status) == 0)
      bytes += static_cast<std::uint64_t>(status.st_size);
  }
  return bytes;
}

std::string describe(const Residency& residency) {
  if (residency.checked == residency.files) return fmt::format("all {} files", residency.files);
  return fmt::format("{} of {} files", residency.checked, residency.files);
}

double images_read(const RunResult& result) {
  double images = 0;
  for (const char* name : {"images_decoded", "bad_samples"}) {
    const auto found = result.counters.find(name);
    if (found != result.counters.end()) images += static_cast<double>(found->second);
  }
  return images;
}

/// Why a run is not warm or cold as requested; empty if it is.
std::string contradiction(PageCache mode, const Residency& before, const Residency& after,
                          const RunResult& result, std::uint64_t examples) {
  const bool direct = result.facts.contains("direct_reads");
  if (!before.is_known()) {
    return fmt::format(
        "the kernel does not report the cached pages of {} of {} files, because they belong to "
        "another user or cannot be opened; run as their owner",
        before.unknown, before.checked);
  }
  if (mode == PageCache::warm && before.percent() < kWarmPercent) {
    return fmt::format(
        "{:.1f} % of the data set was in memory before the first step; expected at least {:.0f} %; "
        "free memory, or use a smaller set",
        before.percent(), kWarmPercent);
  }
  if (mode == PageCache::warm && direct) return "the run read past the page cache (io=direct)";
  if (mode != PageCache::cold) return {};
  if (before.percent() > kColdPercent) {
    return fmt::format(
        "{:.1f} % of the data set was in memory before the first step; expected at most {:.0f} %; "
        "stop other processes that read or map it, and keep it on a disk: tmpfs is memory",
        before.percent(), kColdPercent);
  }
  // Direct reads come from the disk every time and leave nothing in the cache.
  if (direct && after.is_known() && after.percent() <= kColdPercent) return {};
  if (const double read = images_read(result); read > static_cast<double>(examples)) {
    return fmt::format(
        "the run read {:.0f} images of a set of {}, the rest from memory; use fewer steps or a "
        "larger set",
        read, examples);
  }
  return {};
}

}  // namespace

PageCache parse_page_cache(const std::string& text) {
  if (text == "as-is") return PageCache::as_is;
  if (text == "warm") return PageCache::warm;
  if (text == "cold") return PageCache::cold;
  throw ConfigError("--page-cache is '" + text + "'; expected as-is, warm or cold");
}

double Residency::percent() const noexcept {
  return pages == 0 ? 0 : 100 * static_cast<double>(resident_pages) / static_cast<double>(pages);
}

bool Residency::is_known() const noexcept {
  return pages > 0 && static_cast<double>(unknown) <= kUnknownShare * static_cast<double>(checked);
}

Residency measure_residency(const FileList& files) {
  const std::size_t step = files.size() > 2 * kFilesChecked ? files.size() / kFilesChecked : 1;
  Residency residency{.files = files.size()};
  std::vector<unsigned char> flags;
  for (std::size_t i = 0; i < files.size(); i += step) {
    ++residency.checked;
    residency.unknown += !add_pages(files.path(i), flags, residency);
  }
  return residency;
}

void read_into_page_cache(const FileList& files, std::uint64_t available,
                          const std::stop_token& stop) {
  const std::uint64_t bytes = bytes_of(files, stop);
  const MemoryNeed need{.what = "files of the data set, for --page-cache warm,",
                        .bytes = static_cast<double>(bytes),
                        .advice = "take a smaller data set, or measure it with --page-cache cold"};
  require_memory(std::span(&need, 1), available);
  if (bytes > kWorthSaying) {
    fmt::print(stderr, "penstock: reading {} files, {:.1f} GB, into the page cache\n", files.size(),
               1e-9 * static_cast<double>(bytes));
  }
  // Unreadable files are skipped: the run meets them again and reports them.
  std::vector<std::byte> piece(kPiece);
  for (std::size_t i = 0; i < files.size(); ++i) {
    const InputFile file(files.path(i).c_str());
    while (file && !stop.stop_requested() &&
           ::read(file.descriptor(), piece.data(), piece.size()) > 0) {
    }
  }
}

void drop_from_page_cache(const FileList& files, const std::stop_token& stop) {
  // The result is ignored: residency shows whether the kernel followed the advice.
  const auto forget = [](const InputFile& file) {
    static_cast<void>(::posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED));
  };
  for (std::size_t i = 0; i < files.size() && !stop.stop_requested(); ++i) {
    if (const InputFile file(files.path(i).c_str()); file) forget(file);
  }
  // Dirty pages stay, but their writing has begun. Waiting costs a disk flush per file, so wait
  // only for files that still have resident pages.
  std::vector<unsigned char> flags;
  for (std::size_t i = 0; i < files.size() && !stop.stop_requested(); ++i) {
    Residency left;
    if (!add_pages(files.path(i), flags, left) || left.resident_pages == 0) continue;
    if (const InputFile file(files.path(i).c_str()); file) {
      static_cast<void>(::fdatasync(file.descriptor()));
      forget(file);
    }
  }
}

void add_page_cache(RunResult& result, PageCache mode, const Residency& before,
                    const Residency& after, std::uint64_t examples) {
  const std::string_view word = mode == PageCache::cold ? "cold" : "warm";
  const std::string reason = contradiction(mode, before, after, result, examples);
  result.facts[fmt::format("page_cache_{}", word)] = reason.empty() ? 1 : 0;
  result.facts["page_cache_files"] = static_cast<double>(before.files);
  result.facts["page_cache_files_checked"] = static_cast<double>(before.checked);
  if (before.is_known() && after.is_known()) {
    result.facts["page_cache_resident_percent_before"] = before.percent();
    result.facts["page_cache_resident_percent_after"] = after.percent();
    result.notes.push_back(fmt::format(
        "page cache: {:.1f} % of the data set before the first step, {:.1f} % after the run, by {}",
        before.percent(), after.percent(), describe(before)));
  }
  if (!reason.empty()) {
    result.notes.push_back(
        fmt::format("asked for a {} page cache, this is no {} run: {}", word, word, reason));
  }
}

void PageCacheOfRun::prepare(const std::stop_token& stop) {
  if (mode_ == PageCache::as_is || files_ == nullptr) return;
  if (mode_ == PageCache::warm) {
    read_into_page_cache(*files_, available_memory(), stop);
    before_ = measure_residency(*files_);
    return;
  }
  for (int i = 0; i < kDrops; ++i) {
    drop_from_page_cache(*files_, stop);
    before_ = measure_residency(*files_);
    if (before_.percent() <= kColdPercent || stop.stop_requested()) return;
  }
}

void PageCacheOfRun::report(RunResult& result, std::uint64_t examples) const {
  if (mode_ == PageCache::as_is) return;
  if (files_ == nullptr) {
    result.notes.push_back(
        fmt::format("--page-cache {} has no effect: {} reads no files while it runs",
                    result.config.page_cache, result.config.fake_location));
    return;
  }
  add_page_cache(result, mode_, before_, measure_residency(*files_), examples);
}

}  // namespace penstock
