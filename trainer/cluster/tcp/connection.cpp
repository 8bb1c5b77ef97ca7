// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/tcp/connection.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <span>
#include <type_traits>

#include "dataflow/error.h"

namespace penstock::tcp {
namespace {

/// In host byte order; all hosts run the same program.
struct Header {
  static constexpr std::uint32_t kMagic = 0x706e7332;
  std::uint32_t magic = kMagic;
  std::uint32_t kind = 0;
  std::uint64_t length = 0;
};
static_assert(std::has_unique_object_representations_v<Header>);

}  // namespace

std::string to_bytes(const Message& message) {
  const Header header{.kind = static_cast<std::uint32_t>(message.kind),
                      .length = message.body.size()};
  std::string bytes(sizeof header, '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes += message.body;
}

std::optional<Message> MessageReader::next() {
  Header header;
  if (bytes_.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, bytes_.data(), sizeof header);
  if (header.magic != Header::kMagic || header.kind < 1 ||
      header.kind > static_cast<std::uint32_t>(Message::kLast)) {
    throw DataError("reading a rank's message: kind {} with the mark {:#x}, expected {:#x}",
                    header.kind, header.magic, Header::kMagic);
  }
  if (header.length > most_) {
    throw DataError("reading a rank's message: {} bytes long, expected at most {}", header.length,
                    most_);
  }
  if (bytes_.size() - sizeof header < header.length) return std::nullopt;
  Message message{.kind = static_cast<Message::Kind>(header.kind),
                  .body = bytes_.substr(sizeof header, header.length)};
  bytes_.erase(0, sizeof header + header.length);
  return message;
}

bool Connection::send(const Message& message, Time deadline) {
  const std::string bytes = to_bytes(message);
  for (auto left = std::as_bytes(std::span(bytes)); !left.empty();) {
    const std::optional<std::size_t> sent = socket_.send_some(left);
    if (!sent) return false;
    left = left.subspan(*sent);
    if (*sent > 0) continue;
    if (std::chrono::steady_clock::now() >= deadline) return false;
    pollfd writable{socket_.file(), POLLOUT, 0};
    poll(&writable, 1, milliseconds_until(deadline));
  }
  return true;
}

std::optional<Message> Connection::receive() {
  std::array<std::byte, 65536> bytes;
  while (true) {
    if (auto message = reader_.next()) return message;
    const std::optional<std::size_t> count = socket_.receive_some(bytes);
    if (!count) end();
    if (count.value_or(0) == 0) return std::nullopt;
    reader_.add({reinterpret_cast<const char*>(bytes.data()), *count});
  }
}

int milliseconds_until(Time deadline) {
  using std::chrono::milliseconds;
  const auto left =
      std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<milliseconds::rep>(left, 0, 3'600'000));
}

}  // namespace penstock::tcp
