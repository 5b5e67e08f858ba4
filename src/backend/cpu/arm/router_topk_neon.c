#include "backend/cpu/arm/vec_neon.h"

#include "backend/cpu/vec/vec_math.h"

#include "backend/cpu/vec/router_topk_body.h"
