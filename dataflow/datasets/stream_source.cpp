// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/stream_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "dataflow/datasets/sample_order.h"
#include "dataflow/error.h"
#include "dataflow/machine/memory_limit.h"
#include "dataflow/random.h"

namespace penstock::datasets {
namespace {

/// Separates the random numbers of the shuffle buffer from every sample's.
constexpr std::uint64_t kBufferStream = ~std::uint64_t{2};

constexpr std::int64_t kMaxReaders = 256;
constexpr std::uint64_t kMaxRecord = std::uint64_t{1} << 32;

struct StreamLimits {
  std::size_t shuffle_buffer = 1, readers = 1;
  std::uint64_t read_ahead = 0, max_record = 0;

  explicit StreamLimits(const Options& options)
      : read_ahead(options.bytes("read_ahead")), max_record(options.bytes("max_record")) {
    const auto count = [&](const char* name, std::int64_t most) {
      const std::int64_t value = options.integer(name);
      if (value >= 1 && value <= most) return static_cast<std::size_t>(value);
      throw ConfigError("option '{}' of compressed shards is {}; expected 1 to {}", name, value,
                        most);
    };
    shuffle_buffer = count("shuffle_buffer", std::int64_t{1} << 31);
    readers = count("readers", kMaxReaders);
    if (max_record < 1 || max_record > kMaxRecord) {
      throw ConfigError("option 'max_record' of compressed shards is {} bytes; expected 1 to 4GiB",
                        max_record);
    }
  }
};

/// The shards and how to read them; all readers share this.
struct StreamedShards {
  FileList files;
  std::unique_ptr<StreamFormat> format;
  std::vector<std::string_view> compressions;
  std::uint64_t max_record = 0;

  std::unique_ptr<ByteStream> open(std::size_t shard, std::stop_token stop) const {
    return open_shard_stream(files.path(shard), compressions[shard], std::move(stop));
  }
};

/// Counts images by size: sizes[b] counts those of at least 2^(b-1) and less than 2^b bytes.
struct SampleCount {
  std::uint64_t samples = 0;
  std::int32_t greatest_label = 0;
  std::array<std::uint64_t, 34> sizes{};

  void operator+=(const SampleCount& other) noexcept {
    samples += other.samples;
    greatest_label = std::max(greatest_label, other.greatest_label);
    for (std::size_t i = 0; i < sizes.size(); ++i) sizes[i] += other.sizes[i];
  }
  /// An upper bound for the bytes of the `count` largest images.
  std::uint64_t bytes_of_largest(std::uint64_t count) const noexcept {
    std::uint64_t bytes = 0;
    for (std::size_t bits = sizes.size(); bits-- > 0 && count > 0;) {
      const std::uint64_t taken = std::min(count, sizes[bits]);
      if (taken > 0) bytes += taken * ((std::uint64_t{1} << bits) - 1);
      count -= taken;
    }
    return bytes;
  }
};

SampleCount count_samples(const StreamedShards& shards, std::size_t shard, const DataPlan& plan) {
  const std::string path = shards.files.path(shard);
  const std::unique_ptr<ByteStream> bytes = shards.open(shard, {});
  const std::unique_ptr<SampleStream> stream = shards.format->open(*bytes, path, shards.max_record);
  SampleCount count;
  for (StreamedSample sample; stream->next(sample, false);) {
    plan.expect_no_stop();
    ++count.samples;
    if (!sample.problem.empty()) continue;
    if (sample.label >= plan.classes) {
      refuse_label(path, sample.offset, sample.label, plan.classes);
    }
    count.greatest_label = std::max(count.greatest_label, sample.label);
    ++count.sizes[static_cast<std::size_t>(std::bit_width(sample.image_bytes))];
  }
  return count;
}

struct StreamedItem {
  std::size_t shard = 0;
  std::uint64_t number = 0;  ///< in its shard
  StreamedSample sample;
};

/// A thread that reads every `lanes`th part of each epoch, starting with part `number`. It queues
/// the samples until they are taken, within a limit.
class Lane {
 public:
  Lane(const StreamedShards& shards, const StreamOrder& order, std::size_t number,
       std::size_t lanes, std::uint64_t first_epoch, std::uint64_t max_bytes)
      : shards_(shards),
        order_(order),
        number_(number),
        lanes_(lanes),
        max_bytes_(max_bytes),
        allowed_epoch_(first_epoch),
        thread_([this, first_epoch](std::stop_token stop) { run(std::move(stop), first_epoch); }) {}

  /// Blocks until a sample is ready. Rethrows the error that ended the thread.
  StreamedItem take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !items_.empty() || failure_; });
    if (items_.empty()) std::rethrow_exception(failure_);
    StreamedItem item = std::move(items_.front());
    items_.pop_front();
    bytes_ -= item.sample.image.size();
    changed_.notify_all();
    return item;
  }

  /// Lets the thread read up to the end of `epoch`.
  void allow(std::uint64_t epoch) {
    const std::lock_guard lock(mutex_);
    allowed_epoch_ = epoch;
    changed_.notify_all();
  }

 private:
  void run(std::stop_token stop, std::uint64_t epoch) {
    try {
      for (;; ++epoch) {
        {
          std::unique_lock lock(mutex_);
          if (!changed_.wait(lock, stop, [&] { return epoch <= allowed_epoch_; })) return;
        }
        const std::vector<ShardPart> parts = order_.parts(epoch);
        for (std::size_t i = number_; i < parts.size(); i += lanes_) read(parts[i], stop);
      }
    } catch (const StreamStopped&) {
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
      changed_.notify_all();
    }
  }

  /// Gives exactly the part's number of samples, even if the shard has changed.
  void read(const ShardPart& part, const std::stop_token& stop) {
    const std::string path = shards_.files.path(part.shard);
    const std::unique_ptr<ByteStream> bytes = shards_.open(part.shard, stop);
    const std::unique_ptr<SampleStream> stream =
        shards_.format->open(*bytes, path, shards_.max_record);
    bool ended = false;
    for (std::uint64_t number = 0; number < part.first + part.count; ++number) {
      StreamedItem item{part.shard, number, {}};
      const bool in_part = number >= part.first;
      ended = ended || !stream->next(item.sample, in_part);
      if (ended) item.sample.problem = "it no longer exists: the file has changed";
      if (in_part) put(std::move(item), stop);
    }
  }

  void put(StreamedItem item, const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    const std::size_t size = item.sample.image.size();
    const bool has_room = changed_.wait(lock, stop, [&] {
      return items_.empty() || (bytes_ < max_bytes_ && size <= max_bytes_ - bytes_);
    });
    if (!has_room) throw StreamStopped{};
    bytes_ += size;
    items_.push_back(std::move(item));
    changed_.notify_all();
  }

  const StreamedShards& shards_;
  const StreamOrder& order_;
  const std::size_t number_, lanes_;
  const std::uint64_t max_bytes_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<StreamedItem> items_;  // mutex_ protects these
  std::uint64_t bytes_ = 0;         // of the images in items_
  std::uint64_t allowed_epoch_ = 0;
  std::exception_ptr failure_;
  std::jthread thread_;  // last: the thread uses the other members
};

class StreamSource final : public Source {
 public:
  StreamSource(const DataPlan& plan, FileList files, std::unique_ptr<StreamFormat> format,
               const StreamLimits& limits)
      : plan_(plan), limits_(limits) {
    shards_.files = std::move(files);
    shards_.format = std::move(format);
    shards_.max_record = limits.max_record;
    count();
    lanes_.reserve(lane_count());
    epoch_ = plan.first_sample / order_->size();
    for (std::size_t i = 0; i < lane_count(); ++i) {
      lanes_.push_back(std::make_unique<Lane>(shards_, *order_, i, lane_count(), epoch_,
                                              limits.read_ahead / lane_count()));
    }
    begin_epoch();
    if (is_over()) return;
    for (std::uint64_t left = plan.first_sample % order_->size(); left > 0; --left) draw();
  }

  bool next(Sample& sample) override {
    if (left_ == 0 && buffer_.empty()) {
      ++epoch_;
      begin_epoch();
    }
    if (is_over()) return false;
    StreamedItem item = draw();
    sample.label = item.sample.label;
    sample.index = order_->samples_before(item.shard) + item.number;
    sample.epoch = epoch_;
    sample.file = shards_.files.path(item.shard);
    sample.offset = item.sample.offset;
    sample.lent = {};
    sample.bytes = std::move(item.sample.image);
    sample.boxes = std::move(item.sample.boxes);
    if (!item.sample.problem.empty()) refuse_record(sample, item.sample.problem);
    return true;
  }

  SourceFacts facts() const override {
    return {.size = order_->size(),
            .size_over_ranks = order_->size_over_ranks(),
            .classes = count_.greatest_label + 1,
            .files = &shards_.files,
            .note = fmt::format(
                "{} threads read compressed shards sequentially; the shuffle buffer holds {} "
                "samples, at most {:.1f} MB",
                lane_count(), buffer_size(),
                1e-6 * static_cast<double>(count_.bytes_of_largest(buffer_size())))};
  }

 private:
  std::size_t lane_count() const noexcept {
    return std::min(limits_.readers, shards_.files.size());
  }
  /// Without shuffling, a single sample passes through the buffer.
  std::size_t buffer_size() const noexcept {
    return plan_.shuffle ? std::min<std::uint64_t>(limits_.shuffle_buffer, order_->size()) : 1;
  }
  bool is_over() const noexcept {
    return plan_.epochs >= 0 && epoch_ >= static_cast<std::uint64_t>(plan_.epochs);
  }

  /// Reads all shards once, to count the samples and to check that they fit the plan.
  void count() {
    shards_.compressions.resize(shards_.files.size());
    std::vector<SampleCount> counts(shards_.files.size());
    for_each_shard(shards_.files.size(), plan_.threads, [&](std::size_t shard) {
      std::array<std::byte, 16> front{};
      const std::size_t size = shards_.open(shard, {})->read(front);
      shards_.compressions[shard] = shards_.format->compression(std::span(front).first(size));
      counts[shard] = count_samples(shards_, shard, plan_);
    });
    std::vector<std::uint64_t> samples;
    for (const SampleCount& count : counts) {
      samples.push_back(count.samples);
      count_ += count;
    }
    order_.emplace(plan_, std::move(samples));
    const auto samples_held = static_cast<double>(buffer_size());
    const MemoryNeed buffer{.what = "samples in the shuffle buffer for '" + plan_.directory + "'",
                            .bytes = static_cast<double>(count_.bytes_of_largest(buffer_size())),
                            .factors = {{"shuffle_buffer", samples_held}},
                            .advice = "free memory, half of which the buffer may take"};
    require_memory(std::span(&buffer, 1), available_memory() / 2);
  }

  void begin_epoch() {
    turn_ = 0;
    parts_ = order_->parts(epoch_);
    lane_left_.assign(lane_count(), 0);
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      lane_left_[i % lane_count()] += parts_[i].count;
    }
    left_ = is_over() ? 0 : order_->size();
    random_ = Random(plan_.seed, epoch_, kBufferStream);
    const auto last = static_cast<std::uint64_t>(plan_.epochs);  // -1, endless: the greatest
    for (const std::unique_ptr<Lane>& lane : lanes_) {
      if (epoch_ + 1 < last) lane->allow(epoch_ + 1);
    }
  }

  /// Draws a sample at random from the buffer, after filling it.
  StreamedItem draw() {
    while (buffer_.size() < buffer_size() && left_ > 0) {
      buffer_.push_back(take());
      --left_;
    }
    std::swap(buffer_[random_.below(buffer_.size())], buffer_.back());
    StreamedItem item = std::move(buffer_.back());
    buffer_.pop_back();
    return item;
  }

  /// Takes from the lanes in turn. Without shuffling, takes from the lane of the first part that is
  /// not finished.
  StreamedItem take() {
    if (plan_.shuffle) {
      while (lane_left_[turn_] == 0) turn_ = (turn_ + 1) % lane_count();
      --lane_left_[turn_];
      return lanes_[std::exchange(turn_, (turn_ + 1) % lane_count())]->take();
    }
    if (parts_[turn_].count == 0) ++turn_;
    --parts_[turn_].count;
    return lanes_[turn_ % lane_count()]->take();
  }

  const DataPlan plan_;
  const StreamLimits limits_;
  StreamedShards shards_;
  SampleCount count_;
  std::optional<StreamOrder> order_;

  std::uint64_t epoch_ = 0;
  std::uint64_t left_ = 0;  // this epoch's samples in the lanes, or still to be read
  std::vector<ShardPart> parts_;
  std::vector<std::uint64_t> lane_left_;
  std::size_t turn_ = 0;  // the lane's index, or without shuffling the part's
  std::vector<StreamedItem> buffer_;
  Random random_{0};
  std::vector<std::unique_ptr<Lane>> lanes_;  // last: their threads use the other members
};

bool any_is_compressed(const FileList& shards, const StreamFormat& format) {
  for (std::size_t i = 0; i < shards.size(); ++i) {
    std::array<std::byte, 16> front{};
    const std::size_t size = open_shard_stream(shards.path(i), {}, {})->read(front);
    if (!format.compression(std::span(front).first(size)).empty()) return true;
  }
  return false;
}

}  // namespace

std::unique_ptr<Source> make_shard_source(const DataPlan& plan, FileList shards,
                                          std::unique_ptr<StreamFormat> streams,
                                          std::unique_ptr<RecordFormat> records,
                                          const Options& options) {
  if (!any_is_compressed(shards, *streams)) {
    return make_record_source(plan, std::move(shards), std::move(records));
  }
  return std::make_unique<StreamSource>(plan, std::move(shards), std::move(streams),
                                        StreamLimits(options));
}

}  // namespace penstock::datasets
