// SPDX-License-Identifier: Apache-2.0
// Small messages of one size between the processes of a run, over a socket that never blocks: a
// Unix socket without a file on one host, TCP between hosts. A peer has to know the run's key; what
// travels is where ranks are, and is not encrypted.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "dataflow/clock.h"
#include "trainer/rank_progress.h"

namespace penstock {

/// In the byte order of hosts that run the same program.
struct Frame {
  enum class Kind : std::uint8_t {
    hello,    ///< a rank joins, with its place
    beat,     ///< a sign of life, with its state
    overdue,  ///< with its state: it has waited as long as it may
    leave,    ///< it ends on its own account
    verdict,  ///< a rank was lost: end
    ask,      ///< rank 0 was lost: are you there?
    here      ///< yes
  };
  static constexpr std::uint32_t kMagic = 0x706e7331;
  std::uint32_t magic = kMagic;
  Kind kind = Kind::beat;
  RankPhase phase = RankPhase::joining;
  std::uint8_t waiting = 0, unused = 0;
  std::int32_t rank = 0, pid = 0;
  std::int64_t step = -1, warm_up = 0, meetings = 0;
  std::array<char, 64> key{}, host{};  ///< filled up with zeros

  void set(const RankState& state) noexcept;
  RankState state() const noexcept;
};
static_assert(std::is_trivially_copyable_v<Frame> &&
              std::has_unique_object_representations_v<Frame>);

/// `text`, cut to what fits.
std::array<char, 64> padded(std::string_view text);
std::string unpadded(const std::array<char, 64>& text);

class FrameSocket {
 public:
  explicit FrameSocket(int file = -1) noexcept : file_(file) {}
  FrameSocket(FrameSocket&& other) noexcept
      : file_(std::exchange(other.file_, -1)),
        writable_(other.writable_),
        received_(std::move(other.received_)) {}
  FrameSocket& operator=(FrameSocket&& other) noexcept;
  ~FrameSocket();

  /// Connects to an address of a Listener within `patience`; without a file where that failed.
  static FrameSocket connect(const std::string& address, Nanoseconds patience);

  int file() const noexcept { return file_; }
  bool is_open() const noexcept { return file_ >= 0; }
  void close() noexcept;
  /// Drops the frame where the peer does not read or is gone; `receive` finds out.
  void send(const Frame& frame) noexcept;
  /// The next whole frame; nothing: none came yet, or, where the socket is then closed, none will.
  /// Bytes that are no frames close it.
  std::optional<Frame> receive();

 private:
  int file_;
  bool writable_ = true;
  std::string received_;
};

/// Where a process is reached by others.
class FrameListener {
 public:
  /// On this host, under a name that no other run has. Accepts this user's processes alone. Throws
  /// Unavailable where the name is taken.
  static FrameListener local(std::string_view name);
  /// The address of such a listener, whether it is there yet or not.
  static std::string local_address(std::string_view name);
  /// On a port of the system's choice: of the loopback interface, or of all.
  static FrameListener tcp(bool loopback);

  FrameListener(FrameListener&& other) noexcept
      : file_(std::exchange(other.file_, -1)), address_(std::move(other.address_)) {}
  FrameListener& operator=(FrameListener&&) = delete;
  ~FrameListener();

  int file() const noexcept { return file_; }
  /// What FrameSocket::connect takes: of several interfaces, one after the other.
  const std::string& address() const noexcept { return address_; }
  /// Without a file: nobody is waiting, or it was another user's process.
  FrameSocket accept();

 private:
  FrameListener(int file, std::string address) : file_(file), address_(std::move(address)) {}
  int file_;
  std::string address_;
};

}  // namespace penstock
