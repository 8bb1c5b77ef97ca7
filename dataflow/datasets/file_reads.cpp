// SPDX-License-Identifier: Apache-2.0
#include "dataflow/datasets/file_reads.h"

#include "dataflow/error.h"

namespace penstock::datasets {

void FileReads::load(Sample& sample) const {
  const char* const path = sample.file.c_str();
  if (whole_files_) {
    sample.lent = reader_->read(path, sample.storage);
    return;
  }
  if (sample.lent.empty() && !sample.bytes.empty()) {
    throw ConfigError("queue: option 'io' is given, and '" + sample.file +
                      "' is compressed, and read as a stream; leave io out, or decompress it");
  }
  // The length of a damaged record is unknown.
  if (sample.label >= 0 && !sample.lent.empty()) {
    sample.lent = reader_->read(path, sample.offset, sample.lent.size(), sample.storage);
  }
  inner_->load(sample);
}

}  // namespace penstock::datasets
