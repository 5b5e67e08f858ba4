#include "backend/cpu/x86/vec_avx2.h"

#include "backend/cpu/x86/vec_sums.h"

#include "backend/cpu/x86/l2norm_body.h"
