#include "backend/cpu/x86/vec_avx2.h"

#include "backend/cpu/vec/vec_math.h"

#include "backend/cpu/vec/gate_mul_body.h"
