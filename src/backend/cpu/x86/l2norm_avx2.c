#include "backend/cpu/x86/vec_avx2.h"

#include "backend/cpu/vec/vec_sums.h"

#include "backend/cpu/vec/l2norm_body.h"
