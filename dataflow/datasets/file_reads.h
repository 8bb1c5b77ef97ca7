// SPDX-License-Identifier: Apache-2.0
// Wraps a source of files or of records in mapped files, and reads the bytes with a FileReader
// instead. The inner source chooses samples and parses records; it touches no page of the samples.
#pragma once

#include <memory>

#include "dataflow/datasets/source_over.h"
#include "dataflow/machine/file_reader.h"

namespace penstock::datasets {

class FileReads final : public SourceOver {
 public:
  /// `inner` reads files while it runs. With `whole_files` a sample is a whole file. Otherwise it
  /// is a part of a file that next() has lent; `inner` handles other samples, except samples of
  /// compressed shards, for which load() throws ConfigError.
  FileReads(std::unique_ptr<Source> inner, std::unique_ptr<FileReader> reader, bool whole_files)
      : SourceOver(std::move(inner)), reader_(std::move(reader)), whole_files_(whole_files) {}

  bool next(Sample& sample) override { return inner_->next(sample); }
  void load(Sample& sample) const override;

 private:
  const std::unique_ptr<FileReader> reader_;
  const bool whole_files_;
};

}  // namespace penstock::datasets
