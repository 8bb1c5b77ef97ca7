// SPDX-License-Identifier: Apache-2.0
// A file that is written from front to back, and the shards that a data set is cut into. Numbers go
// to files in little-endian order.
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

namespace penstock {

class ShardFile {
 public:
  /// Throws ConfigError, with the path, as all members do where the file cannot be written.
  explicit ShardFile(std::string path);

  void append(std::span<const std::byte> bytes);
  void append(std::string_view text) { append(std::as_bytes(std::span(text))); }
  template <typename Number>
  void append_number(Number value) {
    append(std::as_bytes(std::span(&value, 1)));
  }
  void append_zeros(std::size_t count);
  /// Puts bytes in the place of others at `offset`; what is appended next goes to the end.
  void overwrite(std::uint64_t offset, std::span<const std::byte> bytes);
  /// Bytes so far.
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

/// A writer whose samples are shared out evenly to shards, each a run of them.
class ShardedWriter : public DatasetWriter {
 public:
  explicit ShardedWriter(const WriterPlan& plan) : plan_(plan) {}
  void add(std::span<const std::byte> image, std::int32_t label) final;
  void finish() final;

 protected:
  /// The first number is 0.
  virtual std::string shard_name(std::uint64_t number) const = 0;
  virtual void write(ShardFile& shard, std::uint64_t sample, std::span<const std::byte> image,
                     std::int32_t label) = 0;
  /// All samples of a shard are written; it is closed afterwards.
  virtual void end_shard(ShardFile&) {}
  /// All shards are closed.
  virtual void end() {}

  const WriterPlan plan_;

 private:
  void close_shard();

  std::uint64_t samples_ = 0, shards_ = 0;
  std::optional<ShardFile> shard_;
};

}  // namespace penstock
