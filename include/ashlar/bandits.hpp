// Bandits: every block of ashlar/bandits/.
#pragma once

#include "ashlar/bandits/allocation.hpp"
#include "ashlar/bandits/baselines.hpp"
#include "ashlar/bandits/e4.hpp"
#include "ashlar/bandits/estimation.hpp"
#include "ashlar/bandits/linear_bandit.hpp"
#include "ashlar/bandits/linear_ucb.hpp"
#include "ashlar/bandits/low_rank_environment.hpp"
#include "ashlar/bandits/low_rank_evaluation.hpp"
#include "ashlar/bandits/low_rank_regret.hpp"
#include "ashlar/bandits/optimal_design.hpp"
#include "ashlar/bandits/reduced_model.hpp"
#include "ashlar/bandits/singular_subspaces.hpp"
#include "ashlar/bandits/trial_state.hpp"
