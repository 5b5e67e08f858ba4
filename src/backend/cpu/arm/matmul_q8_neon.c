#include "backend/cpu/arm/vec_neon.h"

#include <string.h>

#include "backend/cpu/arm/vi_neon.h"

#include "backend/cpu/vec/matmul_q8_few_body.h"

#include "backend/cpu/vec/matmul_q8_body.h"
