// SPDX-License-Identifier: Apache-2.0
// The interface for writing encoded images and their labels in a data set format, and what writers
// share: a file that is written from front to back, and the distribution of samples to shards.
//
// To add one: a class in the file of the format, `extern constinit const DatasetWriterEntry
// NAME_dataset_writer{...}` behind it, and one line `penstock_component(dataset_writer NAME)` in
// dataflow/datasets/CMakeLists.txt. The source with the same name must be able to read its files
// without options, whatever the writer's are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "dataflow/entry.h"
#include "dataflow/options.h"

namespace penstock::datasets {

struct WriterPlan {
  std::string directory;        ///< exists and is empty
  std::uint64_t samples = 0;    ///< number of add() calls, above 0
  std::uint64_t shards = 1;     ///< number of files, at most `samples`
  std::int32_t classes = 1;     ///< labels are below this
  std::int32_t image_size = 0;  ///< height and width of pixels
};

class DatasetWriter {
 public:
  virtual ~DatasetWriter() = default;
  /// Writes the next sample, from 0 on: an encoded image, or pixels if the format holds pixels.
  /// Throws ConfigError, with the path, if it cannot be written or the format cannot hold it. One
  /// caller at a time.
  virtual void add(std::span<const std::byte> image, std::int32_t label) = 0;
  /// Call it after the last sample. Throws as add() does.
  virtual void finish() = 0;
};

template <typename Writer>
std::unique_ptr<DatasetWriter> make_writer(const WriterPlan& plan, const Options& options) {
  if constexpr (std::is_constructible_v<Writer, const WriterPlan&, const Options&>) {
    return std::make_unique<Writer>(plan, options);
  } else {
    return std::make_unique<Writer>(plan);
  }
}

struct DatasetWriterEntry {
  std::string_view name{}, summary{};
  std::span<const OptionSpec> options{};
  /// Above 0: the format holds interleaved RGB pixels. This is the default size.
  std::int32_t image_size = 0;
  std::uint64_t shards = 0;  ///< above 0: a fixed number of files
  /// Usually make_writer.
  std::unique_ptr<DatasetWriter> (*make)(const WriterPlan&, const Options&) = nullptr;
};

/// Every format in this build; generated from the component lists.
const Table<DatasetWriterEntry>& dataset_writer_table();

/// A file that is written from front to back. Numbers are little-endian.
class ShardFile {
 public:
  /// All members throw ConfigError, with the path, if the file cannot be written.
  explicit ShardFile(std::string path);

  void append(std::span<const std::byte> bytes);
  void append(std::string_view text) { append(std::as_bytes(std::span(text))); }
  template <typename Number>
  void append_number(Number value) {
    append(std::as_bytes(std::span(&value, 1)));
  }
  void append_zeros(std::size_t count);
  /// Replaces bytes at `offset`. Later appends still go to the end.
  void overwrite(std::uint64_t offset, std::span<const std::byte> bytes);
  /// Bytes written so far.
  std::uint64_t size() const noexcept { return size_; }
  const std::string& path() const noexcept { return path_; }
  void close();

 private:
  struct Close {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };
  [[noreturn]] void refuse() const;

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::uint64_t size_ = 0;
};

/// A writer that distributes samples evenly to shards, consecutive samples to each.
class ShardedWriter : public DatasetWriter {
 public:
  explicit ShardedWriter(const WriterPlan& plan) : plan_(plan) {}
  void add(std::span<const std::byte> image, std::int32_t label) final;
  void finish() final;

 protected:
  /// Numbers start at 0.
  virtual std::string shard_name(std::uint64_t number) const = 0;
  virtual void write(ShardFile& shard, std::uint64_t sample, std::span<const std::byte> image,
                     std::int32_t label) = 0;
  /// Called after the last sample of a shard, before the shard is closed.
  virtual void end_shard(ShardFile&) {}
  /// Called after all shards are closed.
  virtual void end() {}

  const WriterPlan plan_;

 private:
  void close_shard();

  std::uint64_t samples_ = 0, shards_ = 0;
  std::optional<ShardFile> shard_;
};

}  // namespace penstock::datasets
