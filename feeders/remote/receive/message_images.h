// SPDX-License-Identifier: Apache-2.0
// Image files in messages: makes them available as a Source, and the feeder that receives them.
// Each image is lent from the message buffer without a copy. A message is reused when all its
// images have been released. The number of messages is limited, so the receiver waits until one is
// free.
//
//   receiver: free() -> receive -> put()      decoders: await() -> next() -> release
//
// Thread-safety: one thread calls free(), put() and end(). Members of Source as there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "dataflow/clock.h"
#include "dataflow/source.h"
#include "feeders/feeder.h"
#include "feeders/remote/receive/consume_plan.h"
#include "feeders/remote/receive/lent_slots.h"
#include "feeders/remote/receive/message_intake.h"
#include "feeders/remote/wire/framed.h"

namespace penstock::remote {

/// A message of image files.
struct ImageMessage {
  Arrival arrival;
  std::optional<FramedImages> images;  ///< views of the message
  std::string name;                    ///< such as "batch 17 of loader on host7, pid 4711"
  std::int32_t slot = 0;               ///< its place among all messages
};

class MessageImages final : public Source {
 public:
  /// How many images count as an epoch, for callers that search an epoch for a good sample.
  static constexpr std::uint64_t kEpoch = 65'536;

  /// next() throws this at the end after a failure. A DataError would be taken for a bad sample.
  struct Failed {};

  /// Holds at most `messages` at once, made when needed. `slots`, if not null, hears when all
  /// images of a message are released and its memory is free. The clock outlives this object, and
  /// this object outlives what it lends.
  MessageImages(std::size_t messages, std::int32_t classes, Clock& clock,
                std::shared_ptr<LentSlots> slots = {});
  ~MessageImages() override { current_.reset(); }

  /// Returns a free message to receive into; the caller holds it until put(). Null: stopped. While
  /// none is free, it calls `meanwhile`, if there is one, or else blocks.
  ImageMessage* free(const std::stop_token& stop, const std::function<void()>& meanwhile = {});
  /// Adds the images of this message after those of earlier messages.
  void put(ImageMessage& message);
  /// No more messages will come. `failure` says why; null: the data end.
  void end(std::exception_ptr failure);
  /// Throws the failure given to end().
  [[noreturn]] void rethrow();

  bool is_ready() override;
  void await(const std::stop_token& stop) override;
  bool next(Sample& sample) override;
  SourceFacts facts() const override {
    return {.size = kEpoch, .size_over_ranks = kEpoch, .classes = classes_};
  }

 private:
  bool has_news() const noexcept { return ended_ || !waiting_.empty(); }
  bool begin_message();
  void give_back(ImageMessage& message) noexcept;
  bool has_free() const noexcept { return !free_.empty() || all_.size() < most_; }

  const std::size_t most_;
  const std::int32_t classes_;
  Clock& clock_;
  const std::shared_ptr<LentSlots> slots_;

  // Used by the thread that calls next().
  std::shared_ptr<ImageMessage> current_;  // whose images are being lent; null: none
  std::size_t place_ = 0;                  // of its next image
  std::uint64_t lent_ = 0;                 // images so far

  std::mutex mutex_;
  // All below under mutex_.
  Gate freed_, filled_;
  std::deque<ImageMessage> all_;
  std::vector<ImageMessage*> free_;
  std::deque<ImageMessage*> waiting_;  // in the order of arrival
  bool ended_ = false;
  std::exception_ptr failure_;
};

/// zmq-consume:encoded=true: receives messages of image files and decodes them, as the feeder
/// `queue` decodes the files of a folder. Throws ConfigError.
std::unique_ptr<Feeder> make_image_file_consumer(const FeederContext& context,
                                                 const ConsumePlan& plan);

}  // namespace penstock::remote
