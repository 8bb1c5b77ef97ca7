// SPDX-License-Identifier: Apache-2.0
// Includes all kernels. select(call, launch) exists for each kind of call and calls
// launch(Selected<Body>, Geometry, call) once.
#pragma once

#include "trainer/backends/gpu/kernels/arena.h"
#include "trainer/backends/gpu/kernels/avg_pool.h"
#include "trainer/backends/gpu/kernels/batch_norm.h"
#include "trainer/backends/gpu/kernels/batch_norm_backward.h"
#include "trainer/backends/gpu/kernels/channels.h"
#include "trainer/backends/gpu/kernels/dropout.h"
#include "trainer/backends/gpu/kernels/loss.h"
#include "trainer/backends/gpu/kernels/lrn.h"
#include "trainer/backends/gpu/kernels/max_pool.h"
#include "trainer/backends/gpu/kernels/normalise.h"
#include "trainer/backends/gpu/kernels/scale_shift.h"
#include "trainer/backends/gpu/kernels/step.h"
#include "trainer/backends/gpu/kernels/trust.h"
#include "trainer/backends/gpu/kernels/update.h"
