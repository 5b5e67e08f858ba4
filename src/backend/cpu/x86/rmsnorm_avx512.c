#include "backend/cpu/x86/vec_avx512.h"

#include "backend/cpu/x86/vec_sums.h"

#include "backend/cpu/x86/rmsnorm_body.h"
