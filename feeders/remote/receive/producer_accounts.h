// SPDX-License-Identifier: Apache-2.0
// Accounts of producers that number their batches (feeders/remote/framed_format.md): what arrived,
// what was rejected, what is missing, and which producers have ended. At any time, for all images
// that producers are known to have sent:
//
//   sent = received + rejected + missing
//
// A skipped number is missing until it arrives: lost, gone to another consumer, or late. A batch
// whose numbers contradict the accounts is refused with its producer's name, and changes no
// account.
//
// Memory is bounded, whatever is sent: at most Limits::producers producers, each with at most
// Limits::gaps runs of missing numbers. The oldest run is dropped, and stays missing. If there are
// too many producers, one that has ended is dropped. Otherwise, of those that have left or been
// silent while Limits::silence messages came, the one that has been silent longest is dropped:
// killed producers never end. If a dropped producer comes back, it counts as a new one. If none can
// be dropped, the new producer is refused.
//
// Thread-safety: any thread; each call takes one lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dataflow/probe.h"
#include "feeders/remote/wire/framed_header.h"
#include "feeders/remote/wire/framed_texts.h"

namespace penstock::remote {

/// Totals of all producers. Sums are modulo 2^64, of numbers below 2^48.
struct AccountTotals {
  std::uint64_t producers_seen = 0, producers_ended = 0;
  std::uint64_t batches_received = 0, batches_rejected = 0, batches_missing = 0;
  std::uint64_t batches_duplicate = 0;  ///< refused: known number; in no other sum
  std::uint64_t images_sent = 0;        ///< as headers say
  std::uint64_t images_received = 0, images_rejected = 0, images_missing = 0;
  bool operator==(const AccountTotals&) const = default;
};

class ProducerAccounts {
 public:
  struct Limits {
    std::size_t producers = 1024;
    std::size_t gaps = 256;        ///< per producer
    std::uint64_t silence = 1024;  ///< messages: one from each of as many killed producers
  };
  ProducerAccounts() = default;
  explicit ProducerAccounts(const Limits& limits) : limits_(limits) {}

  /// Records the hello of a producer, or its repetition. Throws DataError as received() does.
  void hello(const FramedHeader& header, FramedHello hello);

  /// Records a good batch. Throws DataError, which names the producer, if the batch must not be
  /// used: its number came before, its shape differs from earlier batches, or its header
  /// contradicts earlier ones.
  void received(const FramedHeader& header);

  /// Records a batch that cannot be used. Values that contradict the accounts are ignored.
  void rejected(const FramedHeader& header);

  /// Records how much a producer says it has sent. Throws DataError as received() does.
  void ended(const FramedHeader& header);

  /// Records that the producer cannot be reached: it may be dropped. A hello brings it back.
  void left(std::uint64_t producer);

  /// Whether more is to come if the run waits for as many producers to end. At least 1.
  enum class Flow : std::uint8_t {
    coming,      ///< fewer producers have ended
    stragglers,  ///< enough have ended, and some of their batches are missing
    complete,    ///< enough have ended, and all batches are here
  };
  Flow flow(std::uint64_t producers) const;

  /// "loader on host7, pid 4711", or the producer's number.
  std::string name_of(std::uint64_t producer) const;
  /// The last hello of the producer; empty: none came.
  std::optional<FramedHello> hello_of(std::uint64_t producer) const;
  /// Whether its hello had that boot id; returns `fallback` if no hello had one.
  bool is_of_boot(std::uint64_t producer, std::string_view boot, bool fallback) const;
  AccountTotals totals() const;

  /// Producers with missing images, at most `most` of them, the largest number first.
  struct Absence {
    std::string name;
    std::uint64_t images_sent = 0, images_missing = 0;
  };
  std::vector<Absence> absences(std::size_t most) const;

 private:
  /// Missing numbers [first, end), and the images in them [images_first, images_end).
  struct Gap {
    std::uint64_t first = 0, end = 0, images_first = 0, images_end = 0;
  };
  struct Shape {
    FramedEncoding encoding = FramedEncoding::none;
    std::uint32_t images = 0;  // 0: any
    std::uint32_t height = 0, width = 0, channels = 0;
    bool operator==(const Shape&) const = default;
  };
  struct Producer {
    std::optional<FramedHello> hello;
    std::optional<Shape> shape;
    std::uint64_t next = 0, images_next = 0;  // everything below is in the accounts
    std::vector<Gap> gaps;                    // sorted
    std::uint64_t images_missing = 0;
    bool has_ended = false, has_left = false;
    std::uint64_t heard = 0;  // value of messages_ at its last message
  };
  enum class Fault : std::uint8_t { none, repeated, contradictory };

  static Shape shape_of(const FramedHeader& header);
  static std::string text_of(const Shape& shape);
  std::string describe(std::uint64_t number) const;
  Producer& find(const FramedHeader& header);
  bool make_room();
  void check_shape(Producer& producer, const FramedHeader& header) const;
  Fault place(Producer& producer, const FramedHeader& header);
  Fault fill(Producer& producer, const FramedHeader& header);
  Fault advance(Producer& producer, std::uint64_t next, std::uint64_t images_before);

  const Limits limits_{};
  mutable std::mutex mutex_;
  // All below under mutex_.
  std::map<std::uint64_t, Producer> producers_;
  std::uint64_t messages_ = 0;  // of all producers, including messages in no account
  AccountTotals totals_;
};

}  // namespace penstock::remote
