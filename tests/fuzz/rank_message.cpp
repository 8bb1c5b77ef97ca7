// SPDX-License-Identifier: Apache-2.0
// What a rank that meets the others over TCP receives: messages out of a stream of bytes, and the
// hello of another rank in them.
#include "tests/fuzz/target.h"
#include "trainer/cluster/tcp/rendezvous.h"

namespace penstock::fuzz {
namespace {

std::size_t read(std::span<const std::byte> input) {
  std::string again;
  std::size_t accepted = 0;
  tcp::MessageReader reader;
  reader.limit(tcp::kLongestHello);
  for (const auto piece : {input.first(input.size() / 3), input.subspan(input.size() / 3)}) {
    reader.add(as_text(piece));
    while (const auto message = reader.next()) {
      ensure(message->body.size() <= tcp::kLongestHello, "a body that is too long");
      again += tcp::to_bytes(*message);
      ensure(as_text(input).starts_with(again), "bytes that were not sent");
      if (message->kind == tcp::Message::Kind::hello) {
        const tcp::Hello hello = tcp::parse_hello(message->body);
        ensure(hello.job.size() + hello.host.size() + hello.identity.size() < message->body.size(),
               "texts longer than the message");
      }
      ++accepted;
    }
  }
  return accepted;
}

}  // namespace

std::size_t rank_message(std::span<const std::byte> input) { return use_input(read, input); }

}  // namespace penstock::fuzz
