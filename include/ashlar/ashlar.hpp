// The whole library. A program that uses one block compiles faster with that block's header alone.
#pragma once

#include "ashlar/attention.hpp"
#include "ashlar/bandits.hpp"
#include "ashlar/core/block.hpp"
#include "ashlar/core/config.hpp"
#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/prefetch.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/simd.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"
#include "ashlar/core/workspace.hpp"
#include "ashlar/io/csv.hpp"
#include "ashlar/io/mapped_file.hpp"
#include "ashlar/io/npy.hpp"
#include "ashlar/io/number.hpp"
#include "ashlar/kernels.hpp"
#include "ashlar/linalg/cholesky.hpp"
#include "ashlar/linalg/conjugate_gradient.hpp"
#include "ashlar/linalg/gram.hpp"
#include "ashlar/linalg/small_product.hpp"
#include "ashlar/linalg/softmax.hpp"
#include "ashlar/precision.hpp"
#include "ashlar/sets.hpp"

// These two need a package that may not be there.
#if __has_include(<dlpack/dlpack.h>)
#include "ashlar/io/dlpack.hpp"
#endif
#if __has_include(<nlohmann/json.hpp>)
#include "ashlar/io/safetensors.hpp"
#endif
