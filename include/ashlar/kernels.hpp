// Kernels: every block of ashlar/kernels/.
#pragma once

#include "ashlar/kernels/density_ratio.hpp"
#include "ashlar/kernels/density_ratio_loss.hpp"
#include "ashlar/kernels/density_ratio_nystrom.hpp"
#include "ashlar/kernels/density_ratio_selection.hpp"
#include "ashlar/kernels/importance_weighting.hpp"
#include "ashlar/kernels/kulsif_path.hpp"
