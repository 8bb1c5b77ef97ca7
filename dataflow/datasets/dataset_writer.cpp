// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/dataset_writer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "dataflow/error.h"

namespace penstock::datasets {

static_assert(std::endian::native == std::endian::little,
              "numbers are written in native byte order, which must be little-endian");

ShardFile::ShardFile(std::string path)
    : path_(std::move(path)), file_(std::fopen(path_.c_str(), "wbxe")) {
  if (!file_) refuse();
}

void ShardFile::refuse() const {
  throw ConfigError("cannot write '{}': {}; make room or choose another folder with --out", path_,
                    std::strerror(errno));
}

void ShardFile::append(std::span<const std::byte> bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) refuse();
  size_ += bytes.size();
}

void ShardFile::append_zeros(std::size_t count) {
  static constexpr std::array<std::byte, 4096> kZeros{};
  for (; count > 0; count -= std::min(count, kZeros.size())) {
    append(std::span(kZeros).first(std::min(count, kZeros.size())));
  }
}

void ShardFile::overwrite(std::uint64_t offset, std::span<const std::byte> bytes) {
  if (fseeko(file_.get(), static_cast<off_t>(offset), SEEK_SET) != 0) refuse();
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) refuse();
  if (fseeko(file_.get(), 0, SEEK_END) != 0) refuse();
}

void ShardFile::close() {
  // Some file systems report only here that they are full.
  if (std::fclose(file_.release()) != 0) refuse();
}

void ShardedWriter::add(std::span<const std::byte> image, std::int32_t label) {
  // The shard of this sample. No shard stays empty, because there are at most as many shards as
  // samples.
  if (samples_ * plan_.shards / plan_.samples >= shards_) {
    close_shard();
    shard_.emplace(plan_.directory + "/" + shard_name(shards_));
    ++shards_;
  }
  write(*shard_, samples_++, image, label);
}

void ShardedWriter::finish() {
  close_shard();
  end();
}

void ShardedWriter::close_shard() {
  if (!shard_) return;
  end_shard(*shard_);
  shard_->close();
  shard_.reset();
}

}  // namespace penstock::datasets
