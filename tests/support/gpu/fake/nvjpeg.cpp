// SPDX-License-Identifier: Apache-2.0
// The functions of libnvjpeg.so.13 that the program calls. libjpeg decodes; the pixels reach the
// GPU's memory in the order of the stream. `fail=nvjpegDecode:N:CODE` makes a call fail.
#include <nvjpeg.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <span>
#include <vector>

#include "tests/support/gpu/fake/machine.h"
#include "tests/support/jpeg_writer.h"

namespace fake = penstock::gpu::fake;
using fake::machine;
using penstock::gpu::Accesses;

struct nvjpegHandle {
  unsigned flags = 0;
};
struct nvjpegJpegState {
  nvjpegHandle_t handle = nullptr;
};

namespace {

template <typename Work>
nvjpegStatus_t call(const char* name, const Work& work) {
  if (const int planned = machine().planned(name); planned != 0) {
    return static_cast<nvjpegStatus_t>(planned);
  }
  try {
    return work();
  } catch (const std::exception&) {
    return NVJPEG_STATUS_BAD_JPEG;
  }
}

std::vector<std::byte> file_of(const unsigned char* data, std::size_t length) {
  const auto bytes = std::as_bytes(std::span(data, length));
  return {bytes.begin(), bytes.end()};
}

}  // namespace

nvjpegStatus_t nvjpegCreateEx(nvjpegBackend_t, nvjpegDevAllocator_t*, nvjpegPinnedAllocator_t*,
                              unsigned flags, nvjpegHandle_t* handle) {
  return call("nvjpegCreateEx", [&] {
    *handle = new nvjpegHandle{flags};
    return NVJPEG_STATUS_SUCCESS;
  });
}

nvjpegStatus_t nvjpegDestroy(nvjpegHandle_t handle) {
  return call("nvjpegDestroy", [&] {
    delete handle;
    return NVJPEG_STATUS_SUCCESS;
  });
}

nvjpegStatus_t nvjpegJpegStateCreate(nvjpegHandle_t handle, nvjpegJpegState_t* state) {
  return call("nvjpegJpegStateCreate", [&] {
    *state = new nvjpegJpegState{handle};
    return NVJPEG_STATUS_SUCCESS;
  });
}

nvjpegStatus_t nvjpegJpegStateDestroy(nvjpegJpegState_t state) {
  return call("nvjpegJpegStateDestroy", [&] {
    delete state;
    return NVJPEG_STATUS_SUCCESS;
  });
}

/// From the first frame header, as nvJPEG reads it.
nvjpegStatus_t nvjpegGetImageInfo(nvjpegHandle_t, const unsigned char* data, std::size_t length,
                                  int* components, nvjpegChromaSubsampling_t* subsampling,
                                  int* widths, int* heights) {
  return call("nvjpegGetImageInfo", [&] {
    for (std::size_t at = 2; at + 9 < length && data[at] == 0xff;) {
      const unsigned char* const segment = data + at + 4;
      if (data[at + 1] >= 0xc0 && data[at + 1] <= 0xc2) {
        *components = segment[5];
        *subsampling = NVJPEG_CSS_UNKNOWN;
        std::fill_n(widths, NVJPEG_MAX_COMPONENT, segment[3] << 8 | segment[4]);
        std::fill_n(heights, NVJPEG_MAX_COMPONENT, segment[1] << 8 | segment[2]);
        return NVJPEG_STATUS_SUCCESS;
      }
      at += 2 + (std::size_t{data[at + 2]} << 8 | data[at + 3]);
    }
    return NVJPEG_STATUS_BAD_JPEG;
  });
}

nvjpegStatus_t nvjpegDecode(nvjpegHandle_t handle, nvjpegJpegState_t state,
                            const unsigned char* data, std::size_t length,
                            nvjpegOutputFormat_t format, nvjpegImage_t* to, cudaStream_t stream) {
  return call("nvjpegDecode", [&] {
    if (state->handle != handle || format != NVJPEG_OUTPUT_RGBI) {
      return NVJPEG_STATUS_INVALID_PARAMETER;
    }
    const bool fancy = (handle->flags & (NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION)) != 0;
    const penstock::TestImage image = penstock::decode_jpeg(file_of(data, length), fancy);
    if (image.channels != 3) return NVJPEG_STATUS_JPEG_NOT_SUPPORTED;
    auto* const pixels = reinterpret_cast<std::byte*>(to->channel[0]);
    const std::size_t line = std::size_t{3} * static_cast<std::size_t>(image.width),
                      pitch = to->pitch[0], lines = static_cast<std::size_t>(image.height);
    const cudaError_t status = machine().call("nvjpegDecode on the GPU", fake::During::any, [&] {
      return machine().enqueue(stream, {.name = "nvjpegDecode",
                                        .accesses =
                                            [=] {
                                              return Accesses{{}, {{pixels, pitch * lines}}};
                                            },
                                        .run =
                                            [=] {
                                              for (std::size_t y = 0; y < lines; ++y) {
                                                std::memcpy(pixels + y * pitch,
                                                            image.pixels.data() + y * line, line);
                                              }
                                            }});
    });
    return status == cudaSuccess ? NVJPEG_STATUS_SUCCESS : NVJPEG_STATUS_EXECUTION_FAILED;
  });
}
