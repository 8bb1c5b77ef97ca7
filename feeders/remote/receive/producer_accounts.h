// SPDX-License-Identifier: Apache-2.0
// The accounts of producers that number their batches (feeders/framed_format.md): what came, what
// was refused, what is missing, and who has ended. What is known of all the images that producers
// sent is, at any time,
//
//   sent = received + rejected + missing
//
// A number that was skipped is missing until it comes: lost, gone to another consumer, or late. A
// producer whose numbers contradict each other is refused by name, and changes no account.
//
// Memory is bounded, whatever is sent: of at most Limits::producers, each with at most Limits::gaps
// runs of missing numbers. The oldest run gives way, and stays missing. Of producers, one that has
// ended or left does; else, since those that are killed never end, the one that has been silent for
// longest, while Limits::silence messages came or more. Should it come back, it is taken for a new
// one. If there is none of any kind, the new one is refused.
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

#include "dataflow/wire/framed_header.h"
#include "dataflow/wire/framed_text.h"

namespace penstock {

/// Of all producers. Sums are modulo 2^64, of numbers below 2^48.
struct LedgerTotals {
  std::uint64_t producers_seen = 0, producers_ended = 0;
  std::uint64_t batches_received = 0, batches_rejected = 0, batches_missing = 0;
  std::uint64_t batches_duplicate = 0;  ///< refused, as their numbers had come; in no other sum
  std::uint64_t images_sent = 0;        ///< as far as headers said
  std::uint64_t images_received = 0, images_rejected = 0, images_missing = 0;
  bool operator==(const LedgerTotals&) const = default;
};

class ProducerLedger {
 public:
  struct Limits {
    std::size_t producers = 1024;
    std::size_t gaps = 256;        ///< of each producer
    std::uint64_t silence = 1024;  ///< messages: of as many killed producers each sent one
  };
  ProducerLedger() = default;
  explicit ProducerLedger(const Limits& limits) : limits_(limits) {}

  /// A producer says who it is and what it will send; a second time, it says so again. Throws
  /// DataError as received() does.
  void hello(const FramedHeader& header, FramedHello hello);

  /// A good batch has come. Throws DataError where it must not be used, naming its producer: its
  /// number has come before, it has another shape than those before it, or what it says
  /// contradicts what was said.
  void received(const FramedHeader& header);

  /// A batch has come that cannot be used. What contradicts the accounts is left out of them.
  void rejected(const FramedHeader& header);

  /// A producer says how much it has sent. Throws DataError as received() does.
  void ended(const FramedHeader& header);

  /// Nothing reaches it any more: it may give way to others. A hello brings it back.
  void left(std::uint64_t producer);

  /// Whether there is more to come when so many producers, 1 or more, are to end.
  enum class Flow : std::uint8_t {
    coming,      ///< not all have ended
    stragglers,  ///< they have, and some of what they sent is missing
    complete,    ///< it is all here
  };
  Flow flow(std::uint64_t producers) const;

  /// "loader on host7, pid 4711", or by its number.
  std::string name_of(std::uint64_t producer) const;
  /// What its hello said; empty: none came.
  std::optional<FramedHello> hello_of(std::uint64_t producer) const;
  /// Whether its hello said that boot id; `untold` where no hello said any.
  bool is_of_boot(std::uint64_t producer, std::string_view boot, bool untold = false) const;
  LedgerTotals totals() const;

  /// Of whom images are missing, the most first; at most so many of them.
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
    std::uint64_t next = 0, images_next = 0;  // all below it is in the accounts
    std::vector<Gap> gaps;                    // in their order
    std::uint64_t images_missing = 0;
    bool has_ended = false, has_left = false;
    std::uint64_t heard = 0;  // messages that had come when its last one did
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
  std::uint64_t messages_ = 0;  // of all producers, in the accounts or not
  LedgerTotals totals_;
};

}  // namespace penstock
