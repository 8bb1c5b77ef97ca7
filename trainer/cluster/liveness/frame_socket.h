// SPDX-License-Identifier: Apache-2.0
// Small messages of one size between the processes of a run, over nonblocking sockets: an abstract
// Unix socket on one host, TCP between hosts. A peer must know the run's key. The messages say
// where the ranks are; they are not encrypted. Ranks that meet over TCP also pass plain bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "dataflow/clock.h"
#include "dataflow/machine/file_descriptor.h"
#include "trainer/cluster/rank_progress.h"

namespace penstock::liveness {

/// In host byte order; all hosts run the same program.
struct Frame {
  enum class Kind : std::uint8_t {
    hello,    ///< a rank joins; has its place
    beat,     ///< a sign of life; has its state
    overdue,  ///< it has waited for the maximum time; has its state
    leave,    ///< it ends regularly
    verdict,  ///< a rank was lost: end
    ask,      ///< rank 0 was lost: are you there?
    here      ///< yes
  };
  static constexpr std::uint32_t kMagic = 0x706e7331;
  std::uint32_t magic = kMagic;
  Kind kind = Kind::beat;
  cluster::RankPhase phase = cluster::RankPhase::joining;
  std::uint8_t waiting = 0, unused = 0;
  std::int32_t rank = 0, pid = 0;
  std::int64_t step = -1, warm_up = 0, meetings = 0;
  std::array<char, 64> key{}, host{};  ///< padded with zeros

  void set(const cluster::RankState& state) noexcept;
  cluster::RankState state() const noexcept;
};
static_assert(std::is_trivially_copyable_v<Frame> &&
              std::has_unique_object_representations_v<Frame>);

/// A key that other processes cannot guess. Throws Unavailable.
std::string random_key();

/// `text`, cut to 64 characters and padded with zeros.
std::array<char, 64> padded(std::string_view text);
std::string unpadded(const std::array<char, 64>& text);

class FrameSocket {
 public:
  explicit FrameSocket(int file = -1) noexcept : file_(file) {}

  /// Connects to a listener's address within `patience`. The result is not open if that failed;
  /// errno then says why.
  static FrameSocket connect(const std::string& address, Nanoseconds patience);

  int file() const noexcept { return file_.get(); }
  bool is_open() const noexcept { return static_cast<bool>(file_); }
  void close() noexcept { file_.reset(); }
  /// Drops the frame if the peer does not read or is gone; `receive` then notices it.
  void send(const Frame& frame) noexcept;
  /// Returns the next whole frame. Nothing: none has arrived yet; or none will arrive, and the
  /// socket is closed. Closes the socket if the bytes are not a frame.
  std::optional<Frame> receive();

  /// Passes on as many of the bytes as possible without waiting, and returns their number. `more`:
  /// further bytes follow at once. Nothing: the peer is gone. One thread may send bytes while
  /// another receives some.
  std::optional<std::size_t> send_some(std::span<const std::byte> bytes,
                                       bool more = false) const noexcept;
  /// Reads as many bytes as have arrived, and returns their number. Nothing: no more will arrive.
  std::optional<std::size_t> receive_some(std::span<std::byte> bytes) noexcept;
  /// The address of this host on the way to the peer, such as "192.0.2.1" or "[2001:db8::1]";
  /// empty: unknown.
  std::string own_address() const;

 private:
  FileDescriptor file_;
  bool writable_ = true;
  std::string received_;
};

/// Accepts connections of other processes.
class FrameListener {
 public:
  /// Listens on this host, under a name that is unique to the run. Accepts only processes of this
  /// user. Throws Unavailable if the name is taken.
  static FrameListener local(std::string_view name);
  /// The address of such a listener, which need not exist yet.
  static std::string local_address(std::string_view name);
  /// Listens on `port`, on the loopback interface or on all interfaces; 0: the system chooses the
  /// port. `ipv6`: on IPv6, and unless on loopback on IPv4 too. Throws Unavailable.
  static FrameListener tcp(bool loopback, std::uint16_t port = 0, bool ipv6 = false);

  int file() const noexcept { return file_.get(); }
  /// The address for FrameSocket::connect; lists all interfaces.
  const std::string& address() const noexcept { return address_; }
  /// Of a TCP listener.
  std::uint16_t port() const noexcept;
  /// The result is not open if no process is waiting, or if it was another user's process.
  FrameSocket accept();

 private:
  FrameListener(int file, std::string address) : file_(file), address_(std::move(address)) {}
  FileDescriptor file_;
  std::string address_;
};

}  // namespace penstock::liveness
