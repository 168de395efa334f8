// Diffusion: every block of ashlar/diffusion/.
#pragma once

#include "ashlar/diffusion/gaussian_mixture.hpp"
#include "ashlar/diffusion/guidance.hpp"
#include "ashlar/diffusion/guidance_analysis.hpp"
#include "ashlar/diffusion/guided_sampler.hpp"
#include "ashlar/diffusion/mixture_score.hpp"
#include "ashlar/diffusion/time_grid.hpp"
