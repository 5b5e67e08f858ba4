#include "backend/cpu/arm/vec_neon.h"

#include "backend/cpu/vec/vec_math.h"
#include "backend/cpu/vec/vec_sums.h"

#include "backend/cpu/vec/gate_rmsnorm_body.h"
