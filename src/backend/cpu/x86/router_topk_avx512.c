#include "backend/cpu/x86/vec_avx512.h"

#include "backend/cpu/vec/vec_math.h"

#include "backend/cpu/vec/router_topk_body.h"
