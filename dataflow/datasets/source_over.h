// SPDX-License-Identifier: Apache-2.0
// Base class of sources that wrap another source. By default it forwards to the inner source.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "dataflow/source.h"

namespace penstock::datasets {

class SourceOver : public Source {
 public:
  explicit SourceOver(std::unique_ptr<Source> inner) : inner_(std::move(inner)) {}

  std::uint64_t size() const noexcept override { return inner_->size(); }
  std::uint64_t size_over_ranks() const noexcept override { return inner_->size_over_ranks(); }
  SampleKind kind() const noexcept override { return inner_->kind(); }
  std::int32_t classes() const noexcept override { return inner_->classes(); }
  const FileList* files() const noexcept override { return inner_->files(); }
  std::string note() const override { return inner_->note(); }

 protected:
  const std::unique_ptr<Source> inner_;
};

}  // namespace penstock::datasets
