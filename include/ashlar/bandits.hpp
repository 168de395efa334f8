// Bandits: every block of ashlar/bandits/.
#pragma once

#include "ashlar/bandits/allocation.hpp"
#include "ashlar/bandits/baselines.hpp"
#include "ashlar/bandits/e4.hpp"
#include "ashlar/bandits/estimation.hpp"
#include "ashlar/bandits/linear_bandit.hpp"
#include "ashlar/bandits/optimal_design.hpp"
#include "ashlar/bandits/trial_state.hpp"
