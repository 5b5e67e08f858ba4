#include "backend/cpu/x86/vec_avx512.h"

#include "backend/cpu/x86/vec_math.h"

#include "backend/cpu/x86/mla_attend_body.h"
