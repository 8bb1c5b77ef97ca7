// SPDX-License-Identifier: Apache-2.0
// Messages to a parameter server: the header, then the data as a layout and as texts; then a server
// gets the message and goes on training.
//
// The input's first byte says who sends the message and in how many frames: bit 0 is worker 1 or a
// stranger, bits 1 to 3 are the frames, 0: as many as the message has.
#include "trainer/cluster/servers/message.h"

#include <algorithm>
#include <string>

#include "tests/fuzz/target.h"
#include "tests/support/server_script.h"
#include "trainer/cluster/servers/model_layout.h"

namespace penstock::fuzz {
namespace {

std::size_t parse(std::span<const std::byte> message) {
  const std::size_t cut = std::min(message.size(), cluster::kHeaderBytes);
  const std::span<const std::byte> data = message.subspan(cut);
  const cluster::ServerHeader header = cluster::parse_header(message.first(cut), data.size());
  ensure(header.length == data.size(), "a length that is another");
  if (header.kind == cluster::MessageKind::gather) {
    std::size_t length = 0;
    for (const std::string& text : cluster::split_texts(data, 2)) length += 4 + text.size();
    ensure(length == data.size(), "bytes that no text accounts for");
  }
  if (header.kind == cluster::MessageKind::layout) {
    for (const cluster::Part& part : cluster::parse_layout(data).parts) {
      std::size_t count = 0;
      for (const cluster::Segment& segment : part.segments) count += segment.elements;
      ensure(count == part.count && count <= cluster::kMaxFrame / 4, "a part too long");
    }
  }
  return 1;
}

}  // namespace

std::size_t server_message(std::span<const std::byte> input) {
  if (input.empty()) return 0;
  const unsigned word = std::to_integer<unsigned>(input[0]);
  const std::span<const std::byte> message = input.subspan(1);
  const std::size_t accepted = use_input(parse, message);

  ServerScript script(2);
  script.begin(cluster::ServerRule::on_arrival, "momentum:momentum=0.5,nesterov=false",
               {1, 2, 3, 4});
  const std::size_t cut = std::min(message.size(), cluster::kHeaderBytes);
  const std::size_t frames = word >> 1 & 7;
  script.raw((word & 1) != 0 ? ServerScript::peer(1) : "stranger", message.first(cut),
             cluster::text_of(message.subspan(cut)),
             frames > 0             ? frames
             : message.size() > cut ? 2
                                    : 1);
  script.sent.clear();
  script.push(0, 0, {0, 0, 0, 0}, 1, 1);
  ensure(script.take(0).size() == 1, "a server that does not answer worker 0");
  return accepted;
}

}  // namespace penstock::fuzz
