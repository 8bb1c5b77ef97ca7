// SPDX-License-Identifier: Apache-2.0
// TFRecords: a whole record, and the Example in one.
#include "dataflow/datasets/tfrecord.h"

#include "tests/fuzz/target.h"

namespace penstock::fuzz {
namespace {

std::size_t read_example(std::span<const std::byte> bytes) {
  static_cast<void>(datasets::list_example_keys(bytes));
  const datasets::ExampleView view = datasets::parse_example(bytes, {"image", "label"});
  std::vector<ObjectBox> boxes;
  datasets::read_boxes(view, boxes);
  for (const ObjectBox& box : boxes) {
    ensure(0 <= box.left && box.left <= box.right && box.right <= 1, "a box outside the image");
    ensure(0 <= box.top && box.top <= box.bottom && box.bottom <= 1, "a box outside the image");
  }
  if (!view.image || !view.label) return 0;
  ensure(is_inside(*view.image, bytes), "an image outside the record");
  return 1;
}

template <bool kCheck>
std::size_t read_record(std::span<const std::byte> bytes) {
  ensure(datasets::tfrecord_data(bytes, kCheck).size() + datasets::kTfRecordFrame == bytes.size(),
         "bytes that nothing accounts for");
  return 1;
}

}  // namespace

std::size_t tfrecord(std::span<const std::byte> input) {
  return use_input(read_example, input) + use_input(read_record<true>, input) +
         use_input(read_record<false>, input);
}

}  // namespace penstock::fuzz
