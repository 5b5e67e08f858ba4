#include "backend/cpu/arm/decode_neon.h"

#include "backend/cpu/vec/matmul_body.h"
