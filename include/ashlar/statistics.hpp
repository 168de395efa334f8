// Statistics: every block of ashlar/statistics/ but hellinger_correlation.hpp, which needs Boost.Math.
#pragma once

#include "ashlar/statistics/copula_affinity.hpp"
#include "ashlar/statistics/inverse_regression.hpp"
#include "ashlar/statistics/minimum_average_variance.hpp"
#include "ashlar/statistics/single_index.hpp"
