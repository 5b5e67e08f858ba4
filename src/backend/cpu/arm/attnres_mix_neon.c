#include "backend/cpu/arm/vec_neon.h"

#include "backend/cpu/vec/attnres_mix_body.h"
