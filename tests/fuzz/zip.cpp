// SPDX-License-Identifier: Apache-2.0
// ZIP archives of .npy files: list the members, read each, and parse it as an array of plain
// numbers or of objects.
#include "dataflow/datasets/zip.h"

#include <algorithm>

#include "dataflow/values/numpy_array.h"
#include "dataflow/values/value_tree.h"
#include "tests/fuzz/target.h"

namespace penstock::fuzz {
namespace {

std::size_t parse_array(std::span<const std::byte> file) {
  const std::span<const std::byte> pickle = values::npy_pickle(file);
  if (pickle.empty()) return values::parse_npy(file).data.size() + 1;
  return values::parse_pickle(pickle).size();
}

}  // namespace

std::size_t zip(std::span<const std::byte> input) {
  constexpr std::size_t kMost = std::size_t{1} << 20;
  std::size_t accepted = 0;
  std::vector<datasets::ZipMember> members = datasets::list_zip(input);
  members.resize(std::min<std::size_t>(members.size(), 20));
  for (const datasets::ZipMember& member : members) {
    const std::vector<std::byte> content = datasets::read_zip_member(input, member, kMost);
    ensure(content.size() == std::min<std::uint64_t>(member.bytes, kMost),
           "content of another length than its member's");
    accepted += use_input(parse_array, content);
  }
  return accepted;
}

}  // namespace penstock::fuzz
