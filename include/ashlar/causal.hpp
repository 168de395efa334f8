// Causal discovery: every block of ashlar/causal/ but kernel_score.hpp, which needs LBFGSpp.
#pragma once

#include "ashlar/causal/baseline_scores.hpp"
#include "ashlar/causal/greedy_equivalence_search.hpp"
#include "ashlar/causal/grouped_data.hpp"
#include "ashlar/causal/kernel_likelihood.hpp"
#include "ashlar/causal/score_cache.hpp"
