// SPDX-License-Identifier: Apache-2.0
#include "dataflow/pace.h"

#include <utility>

#include "dataflow/error.h"

namespace penstock {

double checked_rate(double img_per_s, std::string_view what) {
  if (img_per_s >= kLowestRate && img_per_s <= kHighestRate) return img_per_s;
  throw ConfigError("{} is {:g}; expected images per second from 0.001 to 1000000000", what,
                    img_per_s);
}

void Pace::await(std::int64_t images, std::stop_token stop) {
  if (img_per_s_ == 0) return;
  const Time before = due();
  images_ += images;
  const Time now = clock_.now();
  const Time next = due();
  if (now - next > next - before) {
    begin_ = now;
    images_ = 0;
    return;
  }
  clock_.sleep_until(next, std::move(stop));
}

Time Pace::due() const {
  const std::chrono::duration<double> time(static_cast<double>(images_) / img_per_s_);
  return begin_ + std::chrono::round<Nanoseconds>(time);
}

}  // namespace penstock
