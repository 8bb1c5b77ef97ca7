// SPDX-License-Identifier: Apache-2.0
// Decodes, crops and resizes the files of a folder with PIL, and compares Penstock's pixels with
// PIL's.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "dataflow/batch.h"
#include "tests/support/python.h"
#include "tests/support/temp_folder.h"
#include "tests/support/text_bytes.h"
#include "tests/support/text_files.h"

namespace penstock {

inline constexpr ImageShape kPilShape{224, 224, 3};

/// The script reads jobs and writes pixels. If a job has pixels, the script first writes the file.
/// For each file it returns all boxes in order; for a file that PIL refuses, none.
inline constexpr const char* kPilScript = R"(
import json, sys
from PIL import Image, ImageFile
ImageFile.MAXBLOCK = 1 << 22  # PIL's encoder has to have room for the whole file at once
folder = sys.argv[1] + '/'
with open(folder + 'rows', 'wb') as rows:
    for job in json.load(open(folder + 'jobs')):
        path = folder + job['file']
        if 'save' in job:
            options = job['save']
            for key in ('exif', 'icc_profile', 'comment'):
                if key in options:
                    options[key] = bytes(options[key])
            with open(path + '.pixels', 'rb') as pixels:
                Image.frombytes(job['mode'], job['size'], pixels.read()).save(path, **options)
        try:
            image = Image.open(path).convert('RGB')
        except Exception as problem:
            print(job['file'], problem)
            continue
        for box in job['boxes']:
            rows.write(image.crop(box).resize((224, 224), Image.BILINEAR).tobytes())
)";

inline std::vector<std::byte> read_file(const std::filesystem::path& path) {
  return bytes_of_text(read_text(path));
}

/// PIL's results for the jobs in a folder: rows, and error messages.
struct PilRows {
  std::vector<std::byte> bytes;
  std::string refused;

  std::size_t count() const { return bytes.size() / kPilShape.elements(); }
  std::span<const std::byte> row(std::size_t number) const {
    return std::span(bytes).subspan(number * kPilShape.elements(), kPilShape.elements());
  }
};

inline PilRows run_pil(const TempFolder& folder, const nlohmann::json& jobs) {
  std::ofstream(folder / "jobs") << jobs;
  PilRows rows;
  rows.refused = run_python(kPilScript, {folder.path().string()});
  rows.bytes = read_file(folder / "rows");
  return rows;
}

/// Values differ by at most 2, and by less than half on average.
inline testing::AssertionResult close(std::span<const std::byte> ours,
                                      std::span<const std::byte> pil) {
  int worst = 0;
  double sum = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const int difference = std::abs(std::to_integer<int>(ours[i]) - std::to_integer<int>(pil[i]));
    worst = std::max(worst, difference);
    sum += difference;
  }
  const double mean = sum / static_cast<double>(ours.size());
  if (worst <= 2 && mean < 0.5) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "largest difference " << worst << ", mean " << mean;
}

}  // namespace penstock
