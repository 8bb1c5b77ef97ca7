// SPDX-License-Identifier: Apache-2.0
#include "bench/dataset/check_dataset.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

#include "bench/dataset/open_dataset.h"
#include "dataflow/error.h"
#include "dataflow/images/image_format.h"
#include "dataflow/machine/workers.h"
#include "dataflow/source.h"

namespace penstock::dataset {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

/// All pixels of an image are decoded, although only a thumbnail is kept.
constexpr ImageShape kThumbnail{.height = 8, .width = 8, .channels = 3};
constexpr std::chrono::milliseconds kBetweenReports{200};

/// State that the threads share.
class Check {
 public:
  Check(const CheckDataset& order, Source& source, std::stop_token stop)
      : order_(order), source_(source), facts_(source.facts()), stop_(std::move(stop)) {
    result_.labels.resize(static_cast<std::size_t>(facts_.classes));
  }

  void work() noexcept {
    try {
      const std::unique_ptr<Decoder> decoder = make_whole_image_decoder(facts_.kind);
      std::byte pixels[8 * 8 * 3];
      const ImageView row{pixels, kThumbnail, DType::u8, 8 * 3};
      for (Sample sample; take(sample);) {
        try {
          source_.load(sample);
          Random random(0, 0, sample.index);
          decoder->decode(sample, row, random);
          good(sample);
        } catch (const DataError& error) {
          bad(sample, error.what());
        }
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
    }
  }

  CheckedDataset result() {
    if (failure_) std::rethrow_exception(failure_);
    std::ranges::sort(reasons_);
    if (reasons_.size() > CheckedDataset::kMostReasons) {
      reasons_.resize(CheckedDataset::kMostReasons);
    }
    for (auto& [index, reason] : reasons_) result_.reasons.push_back(std::move(reason));
    result_.note = source_.facts().note;
    return std::move(result_);
  }

 private:
  /// Returns false if no sample is left.
  bool take(Sample& sample) {
    const std::lock_guard lock(mutex_);
    while (!failure_) {
      if (stop_.stop_requested()) {
        result_.stopped = true;
        return false;
      }
      try {
        return source_.next(sample);
      } catch (const DataError& error) {
        count_bad(sample.index, error.what());
      }
    }
    return false;
  }
  void good(const Sample& sample) {
    const std::lock_guard lock(mutex_);
    result_.bytes += sample.content().size();
    ++result_.labels.at(static_cast<std::size_t>(sample.label));
    count();
  }
  void bad(const Sample& sample, const char* reason) {
    const std::lock_guard lock(mutex_);
    const std::string_view format =
        facts_.kind == SampleKind::encoded ? undecoded_format(sample.content()) : "";
    if (format.empty()) return count_bad(sample.index, reason);
    CheckedDataset::OtherFormat& other = result_.other_formats[std::string(format)];
    if (other.samples++ == 0) other.example = sample.file;
    ++result_.bad;
    count();
  }
  // Call both under mutex_.
  void count_bad(std::uint64_t index, const char* reason) {
    ++result_.bad;
    reasons_.emplace_back(index, reason);
    count();
  }
  void count() {
    ++result_.samples;
    const SteadyTime now = std::chrono::steady_clock::now();
    if (!order_.on_progress || now - reported_ < kBetweenReports) return;
    reported_ = now;
    order_.on_progress(result_.samples, facts_.size, result_.bad);
  }

  const CheckDataset& order_;
  Source& source_;
  const SourceFacts facts_;
  const std::stop_token stop_;
  std::mutex mutex_;
  // All members below are under mutex_.
  CheckedDataset result_;
  std::vector<std::pair<std::uint64_t, std::string>> reasons_;
  std::exception_ptr failure_;
  SteadyTime reported_{};
};

}  // namespace

CheckedDataset check_dataset(const CheckDataset& order, const std::stop_token& stop) {
  const std::unique_ptr<Source> source = open_dataset({.directory = order.directory,
                                                       .source = order.source,
                                                       .threads = order.threads,
                                                       .stop = stop});
  const SteadyTime began = std::chrono::steady_clock::now();
  Check check(order, *source, stop);
  run_workers(order.threads, [&](std::int32_t) { check.work(); });
  CheckedDataset result = check.result();
  result.seconds = to_seconds(std::chrono::steady_clock::now() - began);
  return result;
}

}  // namespace penstock::dataset
