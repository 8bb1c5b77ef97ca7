// SPDX-License-Identifier: Apache-2.0
// Messages of the zmq_op format: take one apart, check it against a spec, copy the batch.
#include "feeders/remote/wire/zmq_op.h"

#include "tests/fuzz/copy_batch.h"

namespace penstock::fuzz {

std::size_t zmq_op(std::span<const std::byte> input) {
  const remote::WireMessage message = remote::parse_zmq_op(input);
  std::size_t data = 0;
  for (std::size_t i = 0; i < message.tensors; ++i) {
    const std::span<const std::byte> view = message.tensor[i].data;
    ensure(is_inside(view, input), "a view outside the message");
    data += view.size() + 16 + 4 * message.tensor[i].dimensions;
  }
  ensure(data + 4 == input.size(), "bytes that no tensor accounts for");
  copy_batch_checked(remote::as_batch(message, kSpec));
  return 1;
}

}  // namespace penstock::fuzz
