#include "backend/cpu/x86/vec_avx512.h"

#include "backend/cpu/vec/kda_recur_body.h"
