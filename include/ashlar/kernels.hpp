// Kernels: every block of ashlar/kernels/.
#pragma once

#include "ashlar/kernels/density_ratio.hpp"
#include "ashlar/kernels/density_ratio_loss.hpp"
#include "ashlar/kernels/density_ratio_nystrom.hpp"
#include "ashlar/kernels/density_ratio_selection.hpp"
#include "ashlar/kernels/deterministic_equivalent.hpp"
#include "ashlar/kernels/importance_weighting.hpp"
#include "ashlar/kernels/kulsif_path.hpp"
#include "ashlar/kernels/overfitting.hpp"
#include "ashlar/kernels/ridgeless.hpp"
#include "ashlar/kernels/ridgeless_bounds.hpp"
#include "ashlar/kernels/ridgeless_risk.hpp"
#include "ashlar/kernels/spectral_decay.hpp"
#include "ashlar/kernels/spectral_design.hpp"
