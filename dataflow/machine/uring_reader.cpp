// SPDX-License-Identifier: Apache-2.0
// Reads with io_uring. A read is split into pieces, many of which are in flight at once. A ring
// belongs to one read at a time; there are as many rings as simultaneous reads.
#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <utility>

#include "dataflow/machine/file_reader.h"

namespace penstock {
namespace {

constexpr unsigned kDepth = 32;
constexpr std::size_t kPiece = std::size_t{128} << 10;  // a multiple of kReadAlignment

class Ring {
 public:
  Ring() : error_(-io_uring_queue_init(kDepth, &ring_, 0)) {}
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  ~Ring() {
    if (error_ == 0) io_uring_queue_exit(&ring_);
  }
  /// errno, or 0 if the ring is usable.
  int error() const noexcept { return error_; }

  std::int64_t read(int descriptor, std::span<std::byte> buffer, std::uint64_t offset);

 private:
  /// The unread rest of a part of the buffer.
  struct Piece {
    std::size_t begin = 0, end = 0;
  };
  void ask(int descriptor, std::span<std::byte> buffer, std::uint64_t offset, unsigned number);
  /// Waits for requests that write to a buffer, before the buffer returns to its owner.
  void finish(unsigned requests);

  io_uring ring_{};
  const int error_;
  Piece pieces_[kDepth];
};

void Ring::ask(int descriptor, std::span<std::byte> buffer, std::uint64_t offset, unsigned number) {
  const Piece& piece = pieces_[number];
  io_uring_sqe* const entry = io_uring_get_sqe(&ring_);  // not null: one for each piece
  io_uring_prep_read(entry, descriptor, buffer.data() + piece.begin,
                     static_cast<unsigned>(piece.end - piece.begin), offset + piece.begin);
  io_uring_sqe_set_data64(entry, number);
}

void Ring::finish(unsigned requests) {
  io_uring_cqe* completion = nullptr;
  while (requests > 0) {
    if (io_uring_wait_cqe(&ring_, &completion) != 0) continue;  // interrupted
    io_uring_cqe_seen(&ring_, completion);
    --requests;
  }
}

/// As FileReader::fill. No request is in flight when it returns.
std::int64_t Ring::read(int descriptor, std::span<std::byte> buffer, std::uint64_t offset) {
  std::size_t requested = 0, end = buffer.size();
  unsigned under_way = 0, taken = 0;  // taken: how many of these the kernel has accepted
  int failure = 0;
  const auto begin_piece = [&](unsigned number) {
    pieces_[number] = {requested, std::min(requested + kPiece, buffer.size())};
    requested = pieces_[number].end;
    ask(descriptor, buffer, offset, number);
    ++under_way;
  };
  while (under_way < kDepth && requested < buffer.size()) begin_piece(under_way);
  while (under_way > 0) {
    const int submitted = io_uring_submit_and_wait(&ring_, 1);
    if (submitted < 0 && submitted != -EINTR && submitted != -EAGAIN && submitted != -EBUSY) {
      failure = -submitted;
      finish(taken);  // requests that were not accepted never start
      break;
    }
    if (submitted > 0) taken += static_cast<unsigned>(submitted);
    io_uring_cqe* completion = nullptr;
    while (io_uring_peek_cqe(&ring_, &completion) == 0) {
      const auto number = static_cast<unsigned>(io_uring_cqe_get_data64(completion));
      const int result = completion->res;
      io_uring_cqe_seen(&ring_, completion);
      --under_way;
      --taken;
      Piece& piece = pieces_[number];
      const bool again = result == -EINTR || result == -EAGAIN;
      if (result > 0) piece.begin += static_cast<std::size_t>(result);
      if (result < 0 && !again) failure = -result;
      if (result == 0) end = std::min(end, piece.begin);
      if (failure != 0) continue;
      if ((result > 0 || again) && piece.begin < piece.end && piece.begin < end) {
        ask(descriptor, buffer, offset, number);
        ++under_way;
      } else if (requested < end) {
        begin_piece(number);
      }
    }
  }
  if (failure == 0) return static_cast<std::int64_t>(end);
  errno = failure;
  return -1;
}

class UringReader final : public FileReader {
 public:
  explicit UringReader(std::unique_ptr<Ring> ring) { idle_.push_back(std::move(ring)); }

 protected:
  std::int64_t fill(int descriptor, std::span<std::byte> buffer,
                    std::uint64_t offset) const override {
    std::unique_ptr<Ring> ring;
    if (const std::lock_guard lock(mutex_); !idle_.empty()) {
      ring = std::move(idle_.back());
      idle_.pop_back();
    }
    if (ring == nullptr) ring = std::make_unique<Ring>();
    if (ring->error() != 0) {
      errno = ring->error();
      return -1;
    }
    const std::int64_t read = ring->read(descriptor, buffer, offset);
    if (read < 0) return read;  // drops the ring, with anything left in it
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(ring));
    return read;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Ring>> idle_;  // under mutex_
};

}  // namespace

std::unique_ptr<FileReader> make_uring_reader() {
  auto ring = std::make_unique<Ring>();
  if (ring->error() == 0) return std::make_unique<UringReader>(std::move(ring));
  errno = ring->error();
  return nullptr;
}

}  // namespace penstock
