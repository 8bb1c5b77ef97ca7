// SPDX-License-Identifier: Apache-2.0
// A producer or a consumer in a process of its own, for tests to kill, stop and start anew:
//
// - produce ENDPOINT FORMAT PRODUCER COUNT: that many batches of 120 kB
// - shrunk ENDPOINT FORMAT PRODUCER COUNT: the same, of images of another height
// - lend ENDPOINT PRODUCER COUNT SLOTS: the same by credit, in shared memory for so many
// - half ENDPOINT: the first frame of a message, and no more
// - flood ENDPOINT: rubbish, for ever
// - consume OPTIONS COUNT: prints the name of each batch
//
// All but `consume` print a line for each message that libzmq took, or batch that was made. `lend`
// ends when all its leases are back, and says so; the others wait to be killed, ten minutes at
// most.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <thread>

#include "feeders/remote/send/frame_memory.h"
#include "feeders/remote/send/sender.h"
#include "tests/transport/feed.h"
#include "tests/transport/raw_producer.h"

namespace penstock::transport {
namespace {

void say(const std::string& line) {
  std::puts(line.c_str());
  std::fflush(stdout);
}
void await_the_end() { sleep(600); }

Format format_of(const std::string& name) {
  for (const Format format : kFormats) {
    if (name_of(format) == name) return format;
  }
  throw std::runtime_error("no format " + name);
}

void produce(const BatchSpec& spec, const std::vector<std::string>& words) {
  RawProducer producer(words.at(1), RawProducer::Side::connects);
  const std::int32_t number = std::stoi(words.at(3)), count = std::stoi(words.at(4));
  for (std::int32_t batch = 0; batch < count; ++batch) {
    producer.send(message_of(format_of(words.at(2)), spec, {number, batch}));
    say("sent " + std::to_string(batch));
  }
  await_the_end();  // see raw_producer.h
}

void lend(const std::vector<std::string>& words) {
  const std::int32_t number = std::stoi(words.at(2)), count = std::stoi(words.at(3));
  const auto slots = static_cast<std::size_t>(std::stoi(words.at(4)));
  SteadyClock clock;
  Probe probe;
  HostDevice host(clock);
  remote::SharedFrameMemory memory(host, kLarge.bytes(), slots);
  Device* const reader = &host;
  BatchRing ring(kLarge, slots, memory, MemoryKind::pinned, std::span(&reader, 1), Order::relaxed,
                 clock);
  remote::Sender push(
      remote::make_ring_supply(ring, remote::make_lent_outgoing(kLarge, clock, memory.pool()),
                               clock, probe, true),
      net::parse_endpoint(words.at(1)),
      {.role = remote::ZmqSocketOptions::Role::dealer, .bind = false}, clock, probe);
  const std::jthread feeding([&](const std::stop_token& stop) {
    for (std::int32_t batch = 0; batch < count; ++batch) {
      WriteLease lease = ring.acquire(stop);
      if (!lease) return;
      const std::vector<std::byte> pixels = pixels_of(kLarge, {number, batch});
      std::copy(pixels.begin(), pixels.end(), lease.batch().pixels.begin());
      for (std::int32_t i = 0; i < kLarge.images; ++i) {
        lease.batch().labels[static_cast<std::size_t>(i)] = label_of(kLarge, {number, batch}, i);
      }
      std::move(lease).publish();
      say("made " + std::to_string(batch));
    }
    ring.close();
  });
  push.run({.timeout = std::chrono::seconds(40)}, {});
  say("all leases are back");
}

void send_half(const std::string& endpoint) {
  RawProducer producer(endpoint, RawProducer::Side::connects);
  producer.send(message_of(Format::numpy_frames, kLarge, {1, 0})[0], true);
  say("sent half");
  await_the_end();
}

void flood(const std::string& endpoint) {
  RawProducer producer(endpoint, RawProducer::Side::connects);
  for (std::int64_t i = 0;; ++i) {
    producer.send(Bytes(100, std::byte{0xff}), false);
    if (i == 0) say("sent");
  }
}

void consume(const std::vector<std::string>& words) {
  Feed feed(words.at(1), kLarge);
  for (int left = std::stoi(words.at(2)); left > 0; --left) {
    const std::optional<BatchName> name = feed.next();
    if (!name) throw std::runtime_error("a batch that nobody sent");
    say(std::to_string(name->producer) + " " + std::to_string(name->batch));
  }
  await_the_end();
}

void run(const std::vector<std::string>& words) {
  BatchSpec shrunk = kLarge;
  --shrunk.image.height;
  const std::string& what = words.at(0);
  if (what == "produce") return produce(kLarge, words);
  if (what == "shrunk") return produce(shrunk, words);
  if (what == "lend") return lend(words);
  if (what == "half") return send_half(words.at(1));
  if (what == "flood") return flood(words.at(1));
  if (what == "consume") return consume(words);
  throw std::runtime_error("no such peer: " + what);
}

}  // namespace
}  // namespace penstock::transport

int main(int count, char** arguments) {
  try {
    penstock::transport::run({arguments + 1, arguments + count});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
