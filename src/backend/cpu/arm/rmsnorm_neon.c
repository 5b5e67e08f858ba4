#include "backend/cpu/arm/vec_neon.h"

#include "backend/cpu/vec/vec_sums.h"

#include "backend/cpu/vec/rmsnorm_body.h"
