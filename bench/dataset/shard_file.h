// SPDX-License-Identifier: Apache-2.0
// A file that is written from front to back, and the shards of a data set. Numbers are
// little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "bench/dataset/dataset_writer.h"

namespace penstock::dataset {

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

}  // namespace penstock::dataset
