// SPDX-License-Identifier: Apache-2.0
// Decodes JPEG images on a GPU by nvJPEG, for the decoder `jpeg`. The pixels return to the host,
// where they are cropped and resized as those of the other engines. CUDA's libraries are opened
// when the first decoder is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "dataflow/images/crop.h"
#include "dataflow/options.h"

namespace penstock::jpeg {

/// The words of the option `engine`. That of nvJPEG says if this program lacks it.
extern const OptionValue kEngines[3];

/// One thread at a time. Each has a stream and buffers, which grow to the largest image so far.
class GpuDecoder {
 public:
  virtual ~GpuDecoder() = default;
  /// Decodes a colour image of that size and waits for it. Returns the lines `rows`, each of
  /// 3 * size.width bytes of RGB, valid until the next call. Null: nvJPEG does not support the
  /// image, or finds it damaged. Throws DeviceError if the GPU fails.
  virtual const std::uint8_t* decode(std::span<const std::byte> file, ImageSize size,
                                     PixelRange rows) = 0;
};

/// On the process's first GPU. `fancy`: chroma is interpolated. Throws Unavailable with the reason:
/// this program was built without nvjpeg.h, or the machine lacks CUDA's libraries or a GPU.
std::unique_ptr<GpuDecoder> make_gpu_decoder(bool fancy);

}  // namespace penstock::jpeg
