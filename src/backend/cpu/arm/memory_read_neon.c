#include "backend/cpu/arm/vec_neon.h"

#include "backend/cpu/vec/memory_read_body.h"
