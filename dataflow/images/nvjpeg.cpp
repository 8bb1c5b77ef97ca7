// SPDX-License-Identifier: Apache-2.0
#include "dataflow/images/nvjpeg.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nvjpeg.h>

#include <functional>
#include <type_traits>

#include "dataflow/error.h"
#include "dataflow/machine/dynamic_library.h"

namespace penstock::jpeg {

constinit const OptionValue kEngines[3] = {
    {"auto", "built-in for baseline images, else libjpeg"},
    {"libjpeg", "libjpeg-turbo"},
    {"nvjpeg",
     "on a GPU, by nvJPEG; the pixels are copied back; images that it does not support "
     "go to libjpeg"}};

namespace {

/// A library of CUDA.
DynamicLibrary open(const char* name, int major) {
  return {fmt::format("lib{}.so.{}", name, major),
          fmt::format("install CUDA {}'s libraries, name their folder in LD_LIBRARY_PATH, or take "
                      "engine=auto",
                      CUDART_VERSION / 1000)};
}

struct Cuda {
  const DynamicLibrary library = open("cudart", CUDART_VERSION / 1000);
  PENSTOCK_FUNCTION(cudaGetDeviceCount);
  PENSTOCK_FUNCTION(cudaGetErrorString);
  PENSTOCK_FUNCTION(cudaHostAlloc);
  PENSTOCK_FUNCTION(cudaFreeHost);
  PENSTOCK_FUNCTION(cudaStreamCreateWithFlags);
  PENSTOCK_FUNCTION(cudaStreamDestroy);
  PENSTOCK_FUNCTION(cudaEventCreateWithFlags);
  PENSTOCK_FUNCTION(cudaEventDestroy);
  PENSTOCK_FUNCTION(cudaEventRecordWithFlags);
  PENSTOCK_FUNCTION(cudaEventSynchronize);
  PENSTOCK_FUNCTION(cudaMemcpyAsync);
  PENSTOCK_FUNCTION(cudaMalloc);
  PENSTOCK_FUNCTION(cudaFree);
};

struct Nvjpeg {
  const DynamicLibrary library = open("nvjpeg", NVJPEG_VER_MAJOR);
  PENSTOCK_FUNCTION(nvjpegCreateEx);
  PENSTOCK_FUNCTION(nvjpegDestroy);
  PENSTOCK_FUNCTION(nvjpegJpegStateCreate);
  PENSTOCK_FUNCTION(nvjpegJpegStateDestroy);
  PENSTOCK_FUNCTION(nvjpegGetImageInfo);
  PENSTOCK_FUNCTION(nvjpegDecode);
};

Cuda open_cuda() {
  Cuda functions;
  int gpus = 0;
  const cudaError_t found = functions.cudaGetDeviceCount(&gpus);
  if (found == cudaSuccess && gpus > 0) return functions;
  throw Unavailable("engine=nvjpeg decodes on a GPU: {}; take engine=auto",
                    found == cudaSuccess ? "there is none" : functions.cudaGetErrorString(found));
}

/// A handle of a vendor's library, or memory, that is given back.
template <typename Handle>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, std::function<void(Handle)>>;

/// Whether the status is about the image. All others are about the GPU, or about the call.
bool is_about_image(nvjpegStatus_t status) {
  return status == NVJPEG_STATUS_BAD_JPEG || status == NVJPEG_STATUS_JPEG_NOT_SUPPORTED ||
         status == NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED ||
         status == NVJPEG_STATUS_INCOMPLETE_BITSTREAM;
}

class NvjpegDecoder final : public GpuDecoder {
 public:
  explicit NvjpegDecoder(bool fancy) {
    // Training records steps meanwhile, so no work may use the default stream.
    stream_ = own<cudaStream_t>(
        "cudaStreamCreateWithFlags", cuda_.cudaStreamDestroy, [&](cudaStream_t* made) {
          return cuda_.cudaStreamCreateWithFlags(made, cudaStreamNonBlocking);
        });
    // A thread that waits sleeps, so that its CPU time is that of decoding.
    done_ = own<cudaEvent_t>("cudaEventCreateWithFlags", cuda_.cudaEventDestroy,
                             [&](cudaEvent_t* made) {
                               return cuda_.cudaEventCreateWithFlags(
                                   made, cudaEventBlockingSync | cudaEventDisableTiming);
                             });
    const unsigned flags = NVJPEG_FLAGS_BITSTREAM_STRICT |
                           (fancy ? unsigned{NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION} : 0U);
    handle_ =
        own<nvjpegHandle_t>("nvjpegCreateEx", nvjpeg_.nvjpegDestroy, [&](nvjpegHandle_t* made) {
          return nvjpeg_.nvjpegCreateEx(NVJPEG_BACKEND_DEFAULT, nullptr, nullptr, flags, made);
        });
    state_ = own<nvjpegJpegState_t>("nvjpegJpegStateCreate", nvjpeg_.nvjpegJpegStateDestroy,
                                    [&](nvjpegJpegState_t* made) {
                                      return nvjpeg_.nvjpegJpegStateCreate(handle_.get(), made);
                                    });
  }

  const std::uint8_t* decode(std::span<const std::byte> file, ImageSize size,
                             PixelRange rows) override {
    const auto* const data = reinterpret_cast<const unsigned char*>(file.data());
    if (!has_size(data, file.size(), size)) return nullptr;
    const std::size_t line = std::size_t{3} * static_cast<std::size_t>(size.width);
    make_room(line * static_cast<std::size_t>(size.height));
    nvjpegImage_t image{};
    image.channel[0] = static_cast<unsigned char*>(pixels_.get());
    image.pitch[0] = line;
    const nvjpegStatus_t status = nvjpeg_.nvjpegDecode(
        handle_.get(), state_.get(), data, file.size(), NVJPEG_OUTPUT_RGBI, &image, stream_.get());
    if (is_about_image(status)) return nullptr;
    check(status, "nvjpegDecode");
    const std::size_t begin = line * static_cast<std::size_t>(rows.first),
                      bytes = line * static_cast<std::size_t>(rows.end - rows.first);
    check(cuda_.cudaMemcpyAsync(lines_.get(), image.channel[0] + begin, bytes, cudaMemcpyDefault,
                                stream_.get()),
          "cudaMemcpyAsync");
    check(cuda_.cudaEventRecordWithFlags(done_.get(), stream_.get(), cudaEventRecordDefault),
          "cudaEventRecordWithFlags");
    check(cuda_.cudaEventSynchronize(done_.get()), "cudaEventSynchronize");
    return static_cast<const std::uint8_t*>(lines_.get());
  }

 private:
  /// What `make` makes by `call`.
  template <typename Handle, typename Make, typename Destroy>
  Owned<Handle> own(const char* call, Destroy destroy, const Make& make) const {
    Handle made = nullptr;
    check(make(&made), call);
    return {made, [destroy](Handle handle) { destroy(handle); }};
  }

  void check(cudaError_t status, const char* call) const {
    if (status == cudaSuccess) return;
    throw DeviceError("{} failed while engine=nvjpeg decoded: {}", call,
                      cuda_.cudaGetErrorString(status));
  }
  static void check(nvjpegStatus_t status, const char* call) {
    if (status == NVJPEG_STATUS_SUCCESS) return;
    throw DeviceError("{} failed with status {}; nvjpeg.h explains it; take engine=auto", call,
                      static_cast<int>(status));
  }

  /// nvJPEG writes as many pixels as it finds in the file, so it must find those that were checked.
  bool has_size(const unsigned char* data, std::size_t bytes, ImageSize size) const {
    int components = 0, widths[NVJPEG_MAX_COMPONENT] = {}, heights[NVJPEG_MAX_COMPONENT] = {};
    nvjpegChromaSubsampling_t subsampling{};
    const nvjpegStatus_t status = nvjpeg_.nvjpegGetImageInfo(
        handle_.get(), data, bytes, &components, &subsampling, widths, heights);
    if (is_about_image(status)) return false;
    check(status, "nvjpegGetImageInfo");
    return components == 3 && widths[0] == size.width && heights[0] == size.height;
  }

  void make_room(std::size_t bytes) {
    if (bytes <= room_) return;
    room_ = 0;
    pixels_ = own<void*>("cudaMalloc", cuda_.cudaFree,
                         [&](void** made) { return cuda_.cudaMalloc(made, bytes); });
    lines_ = own<void*>("cudaHostAlloc", cuda_.cudaFreeHost, [&](void** made) {
      return cuda_.cudaHostAlloc(made, bytes, cudaHostAllocDefault);
    });
    room_ = bytes;
  }

  const Cuda cuda_ = open_cuda();
  const Nvjpeg nvjpeg_;
  Owned<cudaStream_t> stream_;
  Owned<cudaEvent_t> done_;
  Owned<nvjpegHandle_t> handle_;
  Owned<nvjpegJpegState_t> state_;
  std::size_t room_ = 0;  // of both, in bytes
  Owned<void*> pixels_;   // on the GPU
  Owned<void*> lines_;    // pinned
};

}  // namespace

std::unique_ptr<GpuDecoder> make_gpu_decoder(bool fancy) {
  return std::make_unique<NvjpegDecoder>(fancy);
}

}  // namespace penstock::jpeg
