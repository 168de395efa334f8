// The whole library. A program that uses one block compiles faster with that block's header alone.
#pragma once

#include "ashlar/attention.hpp"
#include "ashlar/bandits.hpp"
#include "ashlar/core/block.hpp"
#include "ashlar/core/config.hpp"
#include "ashlar/core/error.hpp"
#include "ashlar/core/parallel.hpp"
#include "ashlar/core/random.hpp"
#include "ashlar/core/scalar.hpp"
#include "ashlar/core/simd.hpp"
#include "ashlar/core/tensor.hpp"
#include "ashlar/core/view.hpp"
#include "ashlar/core/workspace.hpp"
#include "ashlar/io/mapped_file.hpp"
#include "ashlar/io/npy.hpp"
#include "ashlar/linalg/small_product.hpp"
