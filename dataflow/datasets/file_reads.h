// SPDX-License-Identifier: Apache-2.0
// A source of files or of records in mapped files, whose bytes are read by a FileReader instead:
// the inner source chooses samples and takes records apart, and touches no page of them.
#pragma once

#include <memory>

#include "dataflow/io/file_reader.h"
#include "dataflow/source_over.h"

namespace penstock {

class FileReads final : public SourceOver {
 public:
  /// `inner` reads files while it runs. With `whole_files` a sample is a file; otherwise a part of
  /// one, which next() has lent: other samples are left to `inner`, but for those of compressed
  /// shards, for which load() throws ConfigError.
  FileReads(std::unique_ptr<Source> inner, std::unique_ptr<FileReader> reader, bool whole_files)
      : SourceOver(std::move(inner)), reader_(std::move(reader)), whole_files_(whole_files) {}

  bool next(Sample& sample) override { return inner_->next(sample); }
  void load(Sample& sample) const override;

 private:
  const std::unique_ptr<FileReader> reader_;
  const bool whole_files_;
};

}  // namespace penstock
