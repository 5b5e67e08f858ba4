#include "backend/cpu/arm/vec_neon.h"

#include "backend/cpu/vec/kda_recur_body.h"
