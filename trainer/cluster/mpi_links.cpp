// SPDX-License-Identifier: Apache-2.0
#include "trainer/cluster/mpi_links.h"

#include <mpi.h>

#include <algorithm>
#include <array>
#include <climits>
#include <string>

#include "dataflow/error.h"

namespace penstock::cluster {
namespace {

constexpr int kTag = 1;
/// Limit of one MPI message, whose counts are ints.
constexpr std::size_t kMostBytes = std::size_t{1} << 30;

MPI_Comm duplicate() {
  MPI_Comm communicator = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &communicator), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return communicator;
}

World world_of(MPI_Comm communicator) {
  int rank = 0, size = 1;
  check_mpi(MPI_Comm_rank(communicator, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(communicator, &size), "MPI_Comm_size");
  return {rank, size};
}

}  // namespace

void check_mpi(int code, std::string_view what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw DeviceError(std::string(what) + ": MPI reports '" +
                    std::string(text, static_cast<std::size_t>(length)) +
                    "'; see the messages of the launcher about the other ranks");
}

struct MpiLinks::Communicator {
  MPI_Comm handle = duplicate();
};

MpiLinks::MpiLinks() : communicator_(std::make_unique<Communicator>()) {}
MpiLinks::~MpiLinks() = default;  // MPI_Finalize frees it; freeing it here might wait

/// Sends and receives messages in pieces that MPI can count, one piece each way at a time. If the
/// transfer is abandoned, it cancels the receive, because the memory may be freed.
class MpiTransfer {
 public:
  explicit MpiTransfer(MPI_Comm communicator) : communicator_(communicator) {}
  MpiTransfer(const MpiTransfer&) = delete;
  ~MpiTransfer() {
    for (std::size_t side = 0; side < requests_.size(); ++side) {
      if (requests_[side] == MPI_REQUEST_NULL) continue;
      if (side == kIn) MPI_Cancel(&requests_[side]);
      MPI_Request_free(&requests_[side]);
    }
  }

  void send(std::int32_t to, std::span<const std::byte> bytes) {
    out_ = bytes;
    to_ = to;
  }
  void receive(std::int32_t from, std::span<std::byte> bytes) {
    in_ = bytes;
    from_ = from;
  }
  /// Whether everything is sent and received. Starts the next pieces.
  bool done() {
    const bool sent = is_idle(kOut);  // start both directions before waiting for either
    const bool received = is_idle(kIn);
    return sent && received;
  }

 private:
  static constexpr std::size_t kOut = 0, kIn = 1;

  /// Whether this direction has no piece in progress and none left.
  bool is_idle(std::size_t side) {
    MPI_Request& request = requests_[side];
    for (;;) {
      if (request != MPI_REQUEST_NULL) {
        int done = 0;
        MPI_Status status;
        check_mpi(MPI_Test(&request, &done, &status), "exchanging with the other ranks");
        if (done == 0) return false;
        if (side == kIn) expect_whole(status);
      }
      if (!begin(side, request)) return true;
    }
  }

  /// Starts the next piece. False: there is none.
  bool begin(std::size_t side, MPI_Request& request) {
    if (side == kOut) {
      const std::span<const std::byte> piece = out_.first(std::min(out_.size(), kMostBytes));
      if (piece.empty()) return false;
      check_mpi(MPI_Isend(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, to_, kTag,
                          communicator_, &request),
                "sending to another rank");
      out_ = out_.subspan(piece.size());
      return true;
    }
    const std::span<std::byte> piece = in_.first(std::min(in_.size(), kMostBytes));
    if (piece.empty()) return false;
    expected_ = static_cast<int>(piece.size());
    check_mpi(MPI_Irecv(piece.data(), expected_, MPI_BYTE, from_, kTag, communicator_, &request),
              "receiving from another rank");
    in_ = in_.subspan(piece.size());
    return true;
  }

  void expect_whole(const MPI_Status& status) const {
    int bytes = 0;
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
    if (bytes == expected_) return;
    throw Error("this rank receives " + std::to_string(expected_) + " bytes from rank " +
                std::to_string(from_) + ", which sent " + std::to_string(bytes) +
                "; expected equal sizes; give all ranks the same model and flags");
  }

  const MPI_Comm communicator_;
  std::array<MPI_Request, 2> requests_{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  std::span<const std::byte> out_;  // not yet started
  std::span<std::byte> in_;         // not yet started
  std::int32_t to_ = 0, from_ = 0;
  int expected_ = 0;
};

class MpiLink final : public collectives::Link {
 public:
  MpiLink(MPI_Comm communicator, const ExchangeWait& wait)
      : communicator_(communicator), world_(world_of(communicator)), wait_(wait) {}

  World world() const noexcept override { return world_; }
  void send(std::int32_t to, std::span<const std::byte> bytes) override {
    MpiTransfer transfer(communicator_);
    transfer.send(to, bytes);
    wait_.until([&] { return transfer.done(); });
  }
  void receive(std::int32_t from, std::span<std::byte> bytes) override {
    MpiTransfer transfer(communicator_);
    transfer.receive(from, bytes);
    wait_.until([&] { return transfer.done(); });
  }
  void send_receive(std::int32_t to, std::span<const std::byte> sent, std::int32_t from,
                    std::span<std::byte> received) override {
    MpiTransfer transfer(communicator_);
    transfer.receive(from, received);
    transfer.send(to, sent);
    wait_.until([&] { return transfer.done(); });
  }

 private:
  const MPI_Comm communicator_;
  const World world_;
  const ExchangeWait wait_;
};

std::unique_ptr<collectives::Link> MpiLinks::join(const ExchangeWait& wait) {
  return std::make_unique<MpiLink>(communicator_->handle, wait);
}

}  // namespace penstock::cluster
